"""The configuration of a task. Reading it needs no data, so a command line can show it at once."""

from dataclasses import dataclass, field

from rftlab.llm.tasks import arithmetic
from rftlab.llm.tasks.pools import Sizes
from rftlab.shared.errors import MAX_SEED, check, check_choice, check_count

HUB = "hub"
BENCHMARKS = ("gsm8k", "math")
"""Data sets that people wrote (llm/tasks/benchmarks.py)."""
TASKS = (*BENCHMARKS, *arithmetic.KINDS, "words")
"""Names of all tasks: benchmarks first, then those generated from a seed."""


@dataclass(frozen=True)
class TaskConfig:
    """Which problems a run trains and is tested on."""

    name: str = "mix97"
    """gsm8k, math (benchmarks); mod97, mix97, sign97, chain (arithmetic); words."""
    source: str = HUB
    """Where a benchmark comes from: `hub`, a folder with train and test files, or a file (Parquet or JSON lines)
    with the training problems."""
    test_source: str | None = None
    """The same for a benchmark's test problems, where they are elsewhere."""
    seed: int = 0
    """Generated tasks: equal seeds give equal problems."""
    sizes: Sizes = field(default_factory=Sizes)
    """Generated tasks: problems in each pool."""

    def __post_init__(self):
        check_choice("task", self.name, TASKS)
        check_count("task.seed", self.seed, 0, MAX_SEED)
        generated = self.name not in BENCHMARKS
        check(
            not generated or self.source == HUB,
            f"source = {self.source!r}; {self.name} is generated from a seed and has no source",
        )
        check(
            not generated or self.test_source is None,
            f"test_source = {self.test_source!r}; {self.name} is generated from a seed and has no source",
        )
