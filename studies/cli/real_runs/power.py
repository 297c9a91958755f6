"""The command line of `rftlab power`."""

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from rich.console import Console

from rftlab.shared.plumbing.errors import UserError, check, check_count, check_finite

if TYPE_CHECKING:
    import numpy as np


@dataclass(frozen=True)
class Power:
    """Compute seeds and questions that a difference needs.

    Or whether a difference that was measured is one.

    rftlab power --sigma 0.015 --difference 0.02           # seeds an arm, paired and unpaired
    rftlab power --difference 0.02 --p 0.4 --spread 0.3    # test questions
    rftlab power --a 0.41 0.43 0.40 --b 0.44 0.46 0.45     # is it one?
    rftlab power --imported sweep --a run1 run2 --b run3 run4
    """

    difference: float | None = None
    """Difference of Pass@1 that is to be found, with chance 0.8."""
    sigma: float | None = None
    """Standard deviation of a run's Pass@1 over seeds."""
    correlation: float = 0.0
    """Of two designs' runs with one seed; paired runs gain from it."""
    questions: int | None = None
    """Test questions that there are."""
    p: float | None = None
    """Pass@1."""
    spread: float = 0.0
    """Standard deviation of pass rates over questions (rftlab signal prints it)."""
    responses: int = 1
    """Sampled responses to each test question."""
    a: tuple[str, ...] = ()
    """Pass@1 of the runs of one design; names of runs with --imported, * for any letters."""
    b: tuple[str, ...] = ()
    """The same of the other."""
    paired: bool = False
    """Whether the first of a and the first of b have one seed, and so on."""
    imported: str | None = None
    """Collection of `rftlab import`, NAME, NAME/TASK or NAME#RUN, or public:SOURCE; alone it gives sigma from runs that
    repeat a design."""
    results: Path = Path("results")
    """Results folder with the collection."""

    def __post_init__(self):
        check(bool(self.a) == bool(self.b), "a and b are two sides; allowed: both, or neither")
        for name in ("difference", "sigma"):
            if getattr(self, name) is not None:
                check_finite(name, getattr(self, name), above=0)
        if self.questions is not None:
            check_count("questions", self.questions)
        asked = (
            self.a
            or (self.difference is not None and (self.sigma or self.p or self.imported))
            or (self.questions is not None and self.p is not None)
            or self.imported
        )
        check(
            bool(asked),
            "nothing to compute; allowed: --a .. --b .., --sigma S --difference D, --p P --difference D, "
            "--questions N --p P, or --imported NAME",
        )
        check(not self.paired or bool(self.a), "paired is of measured runs; allowed: with --a and --b")

    def execute(self, console: Console) -> int:
        """Print what follows."""
        from rftlab.studies.forecast.signal import show_power as show

        sigma = self.sigma
        if self.imported:
            show.show_tasks(console, *self._runs())
        if self.a:
            show.show_compared(console, *self._sides(), self.paired, sigma)
        elif self.imported:
            sigma = show.show_repeats(console, *self._runs()) if sigma is None else sigma
        if sigma is not None and self.difference is not None:
            show.show_seeds(console, sigma, self.difference, self.correlation)
        if self.p is not None:
            show.show_questions(console, self._questions(), self.difference, self.questions)
        return 0

    def _questions(self):
        from rftlab.studies.forecast.signal.power import checked_questions

        return checked_questions(self.p, self.spread, self.responses)

    def _runs(self):
        """The imported runs that are meant, and their task where one is named."""
        from rftlab.studies.forecast.signal.repeats import selected

        return selected(self.results, self.imported or "")

    def _sides(self) -> "tuple[np.ndarray, np.ndarray]":
        """Pass@1 of both sides."""
        import numpy as np

        from rftlab.studies.forecast.signal.repeats import chosen, scores_of

        if self.imported:
            scores = scores_of(*self._runs())
            return chosen(scores, self.a), chosen(scores, self.b)
        a, b = (np.array([_rate(name, text) for text in getattr(self, name)]) for name in ("a", "b"))
        return a, b


def _rate(name: str, text: str) -> float:
    """A Pass@1 of the command line."""
    try:
        value = float(text)
    except ValueError:
        raise UserError(f"{name} = {text!r}; allowed: numbers from 0 to 1, or names of runs with --imported") from None
    check(0 <= value <= 1, f"{name} = {text}; allowed: 0 to 1")
    return value
