"""The command line of `rftlab diagnose`: what is going on in one run."""

from dataclasses import dataclass
from pathlib import Path

import tyro
from rich.console import Console

from rftlab.shared.plumbing.errors import check, check_count, check_finite


@dataclass(frozen=True)
class Diagnose:
    """Say what is going on in one run, and what to try.

    Each finding comes with its evidence and its threshold.

        rftlab diagnose run.log                  # any log that rftlab import reads
        rftlab diagnose runs/first               # a folder of rftlab train, or of a simulated run
        rftlab diagnose imported:sweep#lr1e-5    # one run of a collection

    What the log does not hold is not judged, and said.
    """

    run: tyro.conf.Positional[str]
    """A log, a folder of a run, imported:NAME or public:SOURCE; #RUN after it where there are several runs."""
    results: Path = Path("results")
    """Results folder of imported:NAME."""
    questions: int | None = None
    """Questions of an evaluation, where the log does not say."""
    claim: float | None = None
    """Difference of Pass@1 that the evaluation should show; from its first to its last value if left out."""

    def __post_init__(self):
        if self.questions is not None:
            check_count("questions", self.questions)
        if self.claim is not None:
            check_finite("claim", self.claim, above=0.0)
            check(self.claim <= 1, f"claim = {self.claim}; allowed: above 0, at most 1")

    def execute(self, console: Console) -> int:
        """Read, judge, print."""
        from rftlab.studies.analysis.diagnose.checks import diagnose
        from rftlab.studies.analysis.diagnose.show import show
        from rftlab.studies.analysis.source import read_run

        show(console, diagnose(read_run(self.run, self.results), self.questions, self.claim))
        return 0
