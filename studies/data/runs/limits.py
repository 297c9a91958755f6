"""Check the limits of a study: threads, seeds and rounds, and whether the trainer is installed. It imports little,
because the command line is checked with it."""

from importlib.util import find_spec
from typing import Literal

from rftlab.shared.plumbing.errors import check, check_count

CHANGED_PARTS = ("environment", "optimizer", "sampler")
"""Parts of a run that a study may change."""
NEEDS_LLM = "needs torch and transformers: pip install '.[llm]' in rftlab's folder"
MAX_THREADS, MAX_SEEDS = 1024, 10_000


def check_threads(threads: int) -> None:
    """Raise UserError unless so many threads can be used; 0 asks for all cores."""
    check(threads >= 0, f"threads = {threads}; allowed: 0 (all) or more")
    check(threads <= MAX_THREADS, f"threads = {threads}; allowed: 0 (all) to {MAX_THREADS}")


def check_size(seeds: int | None, rounds: int | None) -> None:
    """Raise UserError unless a study can have so many seeds and rounds; None is left to the study."""
    if seeds is not None:
        check_count("seeds", seeds, 1, MAX_SEEDS)
    if rounds is not None:
        check_count("rounds", rounds)


def has_llm() -> bool:
    """Whether the extra `llm` is installed."""
    return bool(find_spec("torch") and find_spec("transformers"))


Order = Literal["worst", "changed", "round"]
"""Order of groups: lowest mean reward first, largest change of rewards first, or as they were sampled."""
