"""What commands of the command line share."""

from dataclasses import dataclass
from pathlib import Path

from rftlab.llm.budget.devices import GpuName
from rftlab.shared.plumbing.errors import check, check_count
from rftlab.studies.data.runs.limits import Engine, check_threads


@dataclass(frozen=True)
class Common:
    """Options of every command that runs something."""

    results: Path = Path("results")
    """Results folder; finished runs in it are not run again."""
    threads: int = 0
    """Threads; 0 means all cores. Results do not depend on it."""
    engine: Engine = "local"
    """What spreads the runs: this process, over cores and one GPU; or Ray, over GPUs and machines (the extra `ray`;
    the cluster of RAY_ADDRESS or its own)."""
    quiet: bool = False
    """No progress bars (for logs)."""

    def __post_init__(self):
        check_threads(self.threads)


@dataclass(frozen=True)
class PlanFlags:
    """Options of a command that can show what it would cost."""

    dry_run: bool = False
    """Print memory, tokens and hours of what would run, and run nothing; needs neither GPU nor download. Status 1
    where it does not fit."""
    gpu: GpuName | None = None
    """GPU of a dry run; the one at hand if left out."""
    prompt_tokens: int | None = None
    """Mean tokens of a prompt that a dry run assumes; the task's usual ones if left out."""
    response_tokens: int | None = None
    """The same of a response."""

    def __post_init__(self):
        for name in ("gpu", "prompt_tokens", "response_tokens"):
            given = getattr(self, name)
            check(given is None or self.dry_run, f"{name} = {given}; allowed: with --dry-run")
        for name in ("prompt_tokens", "response_tokens"):
            if getattr(self, name) is not None:
                check_count(name, getattr(self, name))


def peek(arguments: list[str], flag: str, default: str) -> str:
    """Value of a flag before the command line is parsed as a whole; the last one where it is repeated, as in the
    parser."""
    value = default
    for i, argument in enumerate(arguments):
        if argument == flag and i + 1 < len(arguments):
            value = arguments[i + 1]
        elif argument.startswith(flag + "="):
            value = argument.split("=", 1)[1]
    return value
