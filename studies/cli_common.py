"""What commands of the command line share."""

from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Literal

NEEDS_LLM = "needs torch and transformers: pip install 'rftlab[llm]'"


Engine = Literal["local", "ray"]


def has_llm() -> bool:
    """Whether the extra `llm` is installed."""
    return bool(find_spec("torch") and find_spec("transformers"))


@dataclass(frozen=True)
class Common:
    """Options of every command that runs something."""

    results: Path = Path("results")
    """Results folder; finished runs in it are not run again."""
    threads: int = 0
    """Threads; 0 means all cores. Results do not depend on it."""
    engine: Engine = "local"
    """What spreads the runs: this process, over cores and one GPU; or Ray, over GPUs and machines (the extra `ray`; the cluster of RAY_ADDRESS or its own)."""
    quiet: bool = False
    """No progress bars (for logs)."""


def peek(arguments: list[str], flag: str, default: str) -> str:
    """Value of a flag before the command line is parsed as a whole."""
    for i, argument in enumerate(arguments):
        if argument == flag and i + 1 < len(arguments):
            return arguments[i + 1]
        if argument.startswith(flag + "="):
            return argument.split("=", 1)[1]
    return default
