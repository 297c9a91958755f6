"""Configuration of a task. Reading it needs no data, so that a command line can show it at once."""

from dataclasses import asdict, field
from typing import Literal, get_args

from rftlab.llm.tasks import arithmetic
from rftlab.llm.tasks.task import Sizes
from rftlab.shared.config.checked import config
from rftlab.shared.plumbing.errors import MAX_SEED, check, check_choice, check_count, check_finite

HUB = "hub"
BENCHMARKS = ("gsm8k", "math")
"""Names of the benchmarks, data sets that people wrote (llm/tasks/benchmarks.py)."""
OWN = "own"
"""Name of the task with a user's data (llm/tasks/custom.py)."""
TASKS = (*BENCHMARKS, *arithmetic.KINDS, "words", "largest", OWN)
"""Names of all tasks: benchmarks first, then those generated from a seed, then a user's own."""
Truth = Literal["text", "number", "boxed", "choice"]


@config
class OwnData:
    """The columns of a user's data that become prompts and true answers; for the task `own` alone."""

    prompt_column: str = "question"
    """Column with the question; a list of chat messages in it is the whole prompt."""
    truth_column: str = "answer"
    """Column with the true answer. none: there are none, and a reward decides alone."""
    choices_column: str = "choices"
    """Column with the list of choices, where truth is choice and there is such a column."""
    truth: Truth = "text"
    """The kind of the true answers, and so the rule that judges responses: text; number (after `####`); boxed (LaTeX in
    \\boxed{}); choice (a letter)."""
    template: str = ""
    """Prompt, with columns in braces, as `{question} Answer in French.` ({{ and }} are braces; {choices} is a list
    with letters); if empty the question and an instruction that goes with `truth`."""
    system: str = ""
    """A system message before the prompt."""
    chat: bool = True
    """Whether a prompt is a chat message; otherwise it is text as it is, as `tiny` reads it."""
    test_part: float = 0.1
    """Part of the questions that is kept unseen, where the data have no test split."""
    base: str = "mix97"
    """Arithmetic on which the model `tiny` was pre-trained."""

    def __post_init__(self):
        check_choice("task.own.truth", self.truth, get_args(Truth))
        check_choice("task.own.base", self.base, tuple(arithmetic.KINDS))
        check_finite("task.own.test_part", self.test_part, above=0)
        check(self.test_part < 1, f"task.own.test_part = {self.test_part}; allowed: above 0 and below 1")
        check(bool(self.prompt_column), "task.own.prompt_column is empty; allowed: the name of a column")

    @property
    def has_truths(self) -> bool:
        """Whether the data have true answers."""
        return self.truth_column not in ("", "none")


@config
class TaskConfig:
    """Which problems a run trains and is tested on."""

    name: str = "mix97"
    """gsm8k, math (benchmarks); mod97, mix97, sign97, chain (arithmetic); words, largest (for small pre-trained
    models); own (a user's data)."""
    source: str = HUB
    """Where problems come from: `hub` (of own data `hub:OWNER/NAME`, or `hub:OWNER/NAME:CONFIGURATION`), a folder with
    train and test files, or a file (Parquet, JSON lines, CSV) with the training problems."""
    test_source: str | None = None
    """Where test problems come from, if from elsewhere."""
    seed: int = 0
    """Generated tasks: equal seeds give equal problems."""
    sizes: Sizes = field(default_factory=Sizes)
    """Generated tasks: problems in each pool."""
    own: OwnData = field(default_factory=OwnData)
    """Own data: columns, prompt and truth."""

    def __post_init__(self):
        check_choice("task", self.name, TASKS)
        check_count("task.seed", self.seed, 0, MAX_SEED)
        own, generated = self.name == OWN, self.name not in (*BENCHMARKS, OWN)
        check(
            not own or self.source != HUB,
            f"task = {OWN!r} without data; allowed: --task.source with a file, a folder or hub:OWNER/NAME",
        )
        check(own or self.own == OwnData(), f"task.own is set and task = {self.name!r}; allowed: with the task {OWN}")
        check(
            not generated or self.source == HUB,
            f"source = {self.source!r}; {self.name} is generated from a seed and has no source",
        )
        check(
            not generated or self.test_source is None,
            f"test_source = {self.test_source!r}; {self.name} is generated from a seed and has no source",
        )

    @property
    def reading(self) -> "TaskConfig":
        """The task whose corpus the model `tiny` reads first: this one, or for own data the arithmetic that they
        use."""
        return TaskConfig(self.own.base, seed=self.seed, sizes=self.sizes) if self.name == OWN else self


def task_facts(task: TaskConfig) -> dict:
    """Return a task as plain values. Fields for custom data are left out of other tasks, whose identity is older."""
    facts = asdict(task)
    return facts if task.name == OWN else {name: value for name, value in facts.items() if name != "own"}
