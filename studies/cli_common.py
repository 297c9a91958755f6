"""Options that commands share."""

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Common:
    """Options of every command that runs something."""

    results: Path = Path("results")
    """Results folder; finished runs in it are not run again."""
    threads: int = 0
    """Threads; 0 means all cores. Results do not depend on it."""
    quiet: bool = False
    """No progress bars (for logs)."""
