"""The commands about estimators: estimators, suite, theory."""

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import tyro
from rich.console import Console

from rftlab.shared.plumbing.errors import check
from rftlab.studies.cli.common import Common
from rftlab.studies.data.runs.limits import check_size


@dataclass(frozen=True)
class Estimators:
    """Show estimator cards: formula, constants, source.

    The constants are ddof, eps, and the rule for a group of one.
    """

    name: tyro.conf.Positional[str | None] = None
    """One estimator; all of them if left out."""

    def execute(self, console: Console) -> int:
        """Print the cards."""
        from rftlab.studies.estimators.show import show_cards

        show_cards(console, self.name)
        return 0


@dataclass(frozen=True)
class Suite(Common):
    """Profile estimators on tasks that isolate a difficulty.

        rftlab suite grpo my_file.py:mine

    Each task runs at three learning rates. A score is 0 for the untrained policy and 1 for a run with 16 times the
    rollouts. One estimator alone is set beside RLOO, several beside the last of them. Tables, a figure, and a JSON to
    submit are written to RESULTS/suite; the same command goes on where it was stopped.

        rftlab suite --check submission.json          # runs three random cells again
    """

    names: tyro.conf.Positional[tuple[str, ...]] = ()
    """Estimators of `rftlab estimators`, or FILE.py:FUNCTION; all of rftlab's if left out. One takes
    about 12 seconds on two cores."""
    seeds: int | None = None
    """Seeds of each task; its own number, 10 or 20, if left out."""
    minutes: float = 10.0
    """Time after which an estimator is stopped, with what it got."""
    check: Path | None = None
    """A submission to check; of an estimator of your own, name it too."""

    def execute(self, console: Console) -> int:
        """Run what is missing and print the tables, or check a submission."""
        check(self.minutes > 0, f"minutes = {self.minutes}; allowed: more than 0")
        check_size(self.seeds, None)
        if self.check is not None:
            from rftlab.studies.estimators.suite.submission import check_submission

            check(len(self.names) < 2, f"names = {' '.join(self.names)} with --check; allowed: one, or none")
            return check_submission(console, self.check, *self.names)
        from rftlab.studies.estimators.suite.run import run_suite

        run_suite(console, self.results, self.names, self.seeds, self.minutes, self.threads, self.quiet)
        return 0


@dataclass(frozen=True)
class Theory:
    """Check statements about estimators by simulation.

    They are about estimators, variance, dynamics and regret; each is shown with its formula, its value, the simulated
    value with an interval, and a verdict. Status 1 where a verdict is FAIL. `rftlab theory T3 T14` shows every number
    of those two; `rftlab theory facts` asks what published runs show.
    """

    ids: tyro.conf.Positional[tuple[str, ...]] = ()
    """Checks to run, such as T14; all of them if left out."""
    tier: Literal["all", "fast", "slow"] = "all"
    """Only the fast or only the slow ones."""
    mutants: bool = False
    """Run each check's mutants instead, wrong estimators on which its claims must FAIL."""
    quiet: bool = False
    """No progress bars (for logs)."""

    def execute(self, console: Console) -> int:
        """Run the checks."""
        from rftlab.studies.theory.command import theory

        return theory(console, self.ids, self.tier, self.mutants, self.quiet)


@dataclass(frozen=True)
class TheoryFacts(Common):
    """Ask which facts of published studies the simulator shows.

    Each is a number from runs of the simulator, in each of its worlds, and of language models where such runs come with
    rftlab: yes where its 95% interval lies in the range that was written down before.

        rftlab theory facts                    # all of them, minutes on two cores
        rftlab theory facts narrowing lag      # two of them, with their numbers
    """

    names: tyro.conf.Positional[tuple[str, ...]] = ()
    """Facts, by the names of the table; all of them if left out."""

    def execute(self, console: Console) -> int:
        """Run what is missing, and print the verdicts."""
        from rftlab.studies.theory.facts.command import theory_facts

        return theory_facts(console, self.names, self.results, self.threads, self.quiet)
