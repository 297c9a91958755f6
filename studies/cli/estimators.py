"""The commands about estimators: estimators, compare-estimators, theory."""

import re
from dataclasses import dataclass
from typing import Annotated, Literal

import tyro
from rich.console import Console

from rftlab.shared.cards import find_name, preset
from rftlab.shared.plumbing.errors import UserError, check
from rftlab.studies.cli.common import Common
from rftlab.studies.estimators.league.rules import Rules


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
class CompareEstimators(Common):
    """Compare estimators on the same problems, seed by seed.

        rftlab compare-estimators grpo rloo --cell 64x8

    Differences to the first, with 95% intervals that hold together, at equal rounds and at equal rollouts; and the
    smallest difference that so many seeds would find. Runs lie in RESULTS; `--plugins FILE` adds estimators of your
    own.
    """

    names: tyro.conf.Positional[tuple[str, ...]] = ()
    """Estimators of `rftlab estimators`; the others are compared with the first."""
    cell: str = "32x8"
    """Contexts of a round x rollouts of each; an estimator that needs no group takes one rollout."""
    pairs: Annotated[tuple[str, ...], tyro.conf.arg(aliases=("--pair",))] = ("qwen-gsm8k",)
    """Model-dataset pairs of the simulator."""
    seeds: int = 8
    """Seeds of every pair."""
    rounds: int = 500
    """Training rounds."""
    minibatches: int = 4
    """Updates of a round: with one, ratios are 1 and all surrogates agree."""
    noise: float = 0.1
    """Standard deviation of the noise on the sampler's logits: with 0, importance corrections do nothing."""
    style_tokens: float = 15.0
    """Mean number of style tokens of a response: with 0, aggregations and sequence ratios agree."""

    @property
    def rules(self) -> Rules:
        """What all have in common. Raises UserError for a cell that is none."""
        match = re.fullmatch(r"(\d{1,6})x(\d{1,6})", self.cell)
        if match is None:
            raise UserError(f"cell = {self.cell!r}; allowed: contexts x rollouts, such as 64x8")
        numbers = {"batch_size": int(match[1]), "rollouts": int(match[2])}
        rest = {name: getattr(self, name) for name in ("seeds", "rounds", "minibatches", "noise", "style_tokens")}
        return Rules(self.pairs, **rest, **numbers)

    def execute(self, console: Console) -> int:
        """Run what is missing, and print the tables."""
        names = tuple(map(find_name, self.names))
        several = len(names) >= 2 and len(set(names)) == len(names)
        check(several, f"names = {' '.join(self.names) or 'none'}; allowed: two or more estimators, each once")
        for name in names:
            preset(name)
        from rftlab.studies.estimators.compare import compare_estimators

        compare_estimators(console, self.rules, names, self.results, self.threads, self.quiet)
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
