"""The commands about estimators (estimators, suite, theory), and those of `rftlab dev` about the law and rftlab itself
(law, public, doctor)."""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

import tyro
from rich.console import Console

from rftlab.shared.effective_batch import Costs, token_costs
from rftlab.shared.plumbing.errors import check, check_finite
from rftlab.studies.cli.common import Common, check_named
from rftlab.studies.data.runs.limits import check_size


@dataclass(frozen=True)
class Estimators:
    """Show estimator cards: formula, constants, source.

    The constants are ddof, eps, and the rule for a group of one.
    """

    name: tyro.conf.Positional[str | None] = None
    """Name of one estimator; all of them if left out."""

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
    """Minutes after which an estimator is stopped and shown with the runs that have ended."""
    check: Path | None = None
    """Submission to check; name your estimator too where it is one of your own."""

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
    """Which checks to run: all, only the fast or only the slow ones."""
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


@dataclass(frozen=True)
class CostFlags:
    """Costs of a round's parts, in any unit."""

    prompt: float = 0.0
    """Cost of a prompt."""
    rollout: float = 1.0
    """Cost of a response."""
    token: float = 0.0
    """Cost of a token, read or sampled."""
    prompt_tokens: float = 0.0
    """Tokens of a prompt."""
    response_tokens: float = 0.0
    """Tokens of a response."""

    def costs(self) -> Costs:
        """Return the costs of a prompt and of a rollout, tokens included."""
        return token_costs(self.prompt, self.rollout, self.token, self.prompt_tokens, self.response_tokens)


@dataclass(frozen=True)
class Law:
    """Rank designs by their effective batch size.

    Prints what a round of a design is worth.

        rftlab dev law --pair tiny-mix97           # r and phi, all designs with forecasts, the best split of a round
        rftlab dev law --pair llama-math --budget 512
        rftlab dev law --r 0.08 --cost.prompt 4         # the best split for an r that you measured
    """

    pair: str | None = None
    """A pair with a pilot, in the results folder or in the package, or one of the simulator."""
    r: float | None = None
    """Variance of gradients between prompts, divided by that of a response within its prompt; instead of a pair's."""
    phi: float = 1.0
    """With --r: part of the variance within a prompt that a perfect baseline leaves."""
    budget: float = 256.0
    """The limit of a round's cost."""
    cost: CostFlags = field(default_factory=CostFlags)
    """Costs of a round's parts, in any unit."""
    results: Path = Path("results")
    """Results folder with the pilots."""

    def __post_init__(self):
        check((self.pair is None) != (self.r is None), "pair and r; allowed: one of the two")
        check_named(self, ("r",), check_finite, 0)
        check(self.phi == 1 or self.r is not None, f"phi = {self.phi:g}; allowed: with --r")
        check_finite("phi", self.phi, above=0)
        check_finite("budget", self.budget, above=0)
        for name in ("prompt_tokens", "response_tokens"):
            check_finite(f"cost.{name}", getattr(self.cost, name), 0)
        self.cost.costs()

    def execute(self, console: Console) -> int:
        """Print r, phi and designs of a pair, or the best split for an r."""
        if self.r is not None:
            from rftlab.shared.effective_batch import NoiseRatios
            from rftlab.studies.forecast.law.show import show_split

            show_split(console, NoiseRatios(self.r, self.phi), self.cost.costs(), self.budget)
        if self.pair is not None:
            from rftlab.studies.forecast.law.show import show_pair

            show_pair(console, self.pair, self.results, self.cost.costs(), self.budget)
        return 0


@dataclass(frozen=True)
class Public:
    """List public training logs and the claims they test.

    They are of pre-trained models, and are shown with their noise.

        rftlab dev public               # all sources and claims
        rftlab dev public pods          # one, with its traps
        rftlab compare public:pods public:kaip598   # its runs: also in report, diagnose, predict, power --imported
    """

    source: tyro.conf.Positional[str | None] = None
    """Source to show, with its traps; all of them if left out."""

    def execute(self, console: Console) -> int:
        """Print the tables."""
        from rftlab.studies.analysis.public.show import show_sources

        show_sources(console, self.source)
        return 0


@dataclass(frozen=True)
class Doctor:
    """Check the installation: versions, threads, cache, disk."""

    results: Path = Path("results")
    """Results folder, of which the free disk space is checked."""

    def execute(self, console: Console) -> int:
        """Print the facts; status 1 where there is a problem."""
        from rftlab.studies.cli.execute.doctor import examine

        return 1 if examine(console, self.results) else 0
