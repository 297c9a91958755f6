"""The commands of `rftlab dev` that look after rftlab itself and its law: doctor, law, public."""

from dataclasses import dataclass, field
from pathlib import Path

import tyro
from rich.console import Console

from rftlab.shared.effective_batch import Costs, token_costs
from rftlab.shared.plumbing.errors import check, check_finite
from rftlab.studies.cli.common import check_named


@dataclass(frozen=True)
class CostFlags:
    """The costs of a round's parts, in any unit."""

    prompt: float = 0.0
    """Of a prompt."""
    rollout: float = 1.0
    """Of a response."""
    token: float = 0.0
    """Of a token, read or sampled."""
    prompt_tokens: float = 0.0
    """Tokens of a prompt."""
    response_tokens: float = 0.0
    """Tokens of a response."""

    def costs(self) -> Costs:
        """Of a prompt and of a rollout, tokens included."""
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
    """Variance of gradients between prompts over that of a response within its prompt, instead of a pair's."""
    phi: float = 1.0
    """With --r: what a perfect baseline leaves of the variance within."""
    budget: float = 256.0
    """The limit of a round's cost."""
    cost: CostFlags = field(default_factory=CostFlags)
    """The costs of its parts."""
    results: Path = Path("results")
    """Results folder, for pilots."""

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
        """Print."""
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
    """One of them, with its traps; all if left out."""

    def execute(self, console: Console) -> int:
        """Print the tables."""
        from rftlab.studies.analysis.public.show import show_sources

        show_sources(console, self.source)
        return 0


@dataclass(frozen=True)
class Doctor:
    """Check the installation: versions, threads, cache, disk."""

    results: Path = Path("results")
    """Where results would go."""

    def execute(self, console: Console) -> int:
        """Print the facts; status 1 where there is a problem."""
        from rftlab.studies.cli.execute.doctor import examine

        return 1 if examine(console, self.results) else 0
