"""The command line of `rftlab signal`."""

from dataclasses import dataclass
from pathlib import Path

import tyro
from rich.console import Console

from rftlab.shared.plumbing.errors import check, check_count


@dataclass(frozen=True)
class Signal:
    """Compute how many groups of a round teach anything.

    From pass rates: silent groups, effective batch, tries of dynamic sampling, prompts worth dropping.

        rftlab signal rates.csv                     # a question a row: right,responses (or pass_rate)
        rftlab signal --pair tiny-mix97             # a pilot, or the measurements that come with rftlab
        rftlab signal --imported mine               # groups of an imported run, where its log has a response a row
        rftlab signal --p 0.3 --spread 0.2          # pass rates from a Beta of this mean and deviation
    """

    file: tyro.conf.Positional[Path | None] = None
    """CSV or JSON with a question a row: right and responses, or pass_rate."""
    column: str | None = None
    """Column of the pass rates, where its name is not understood."""
    responses: int | None = None
    """Responses behind each rate, where the file does not say it."""
    pair: str | None = None
    """Model-dataset pair whose base model a pilot measured."""
    imported: str | None = None
    """Collection of rftlab import, NAME or NAME#RUN, from a log with a response a row."""
    rounds: tuple[int, int] | None = None
    """First and last round of the imported run that are looked at; its last quarter if left out."""
    results: Path = Path("results")
    """Results folder with the pilot or the collection."""
    p: float | None = None
    """Mean pass rate, instead of measurements."""
    spread: float = 0.0
    """Its standard deviation over questions."""
    batch: tuple[int, ...] = (8, 32, 128, 256)
    """B: prompts of a round."""
    rollouts: tuple[int, ...] = (2, 4, 8, 16, 32)
    """K: responses to each."""

    def __post_init__(self):
        given = [name for name in ("file", "pair", "imported", "p") if getattr(self, name) is not None]
        check(
            len(given) == 1,
            f"pass rates from {' and '.join(given) or 'nowhere'}; allowed: one of a file, --pair NAME, --imported "
            "NAME, --p P",
        )
        for name, least in (("batch", 1), ("rollouts", 2)):  # one response has no group to differ from
            check(bool(getattr(self, name)), f"{name} names none; allowed: one number or more")
            check(len(getattr(self, name)) <= 12, f"{name} names {len(getattr(self, name))}; allowed: at most 12")
            for value in getattr(self, name):
                check_count(name, value, least, 100_000)
        check(self.spread == 0 or self.p is not None, f"spread = {self.spread:g}; allowed: with --p")
        only = self.file is not None or (self.responses is None and self.column is None)
        check(
            self.rounds is None or self.imported is not None, "rounds are of an imported run; allowed: with --imported"
        )
        for value in self.rounds or ():
            check_count("rounds", value, 0)
        check(only, "column and responses describe a file; allowed: with a file")
        if self.responses is not None:
            check_count("responses", self.responses, 1, 100_000)

    def execute(self, console: Console) -> int:
        """Print the tables."""
        from rftlab.studies.forecast.signal import show
        from rftlab.studies.forecast.signal.source import fit_rates

        measured, origin = self._measured()
        found = fit_rates(measured) if measured else self._assumed()
        if origin:
            show.say(console, origin)
        show.say(console, f"pass rates: {found.origin}")
        show.say(console, f"mean {found.rates.mean:.3f}, deviation {max(0.0, found.rates.variance) ** 0.5:.3f}")
        show.show_silent(console, found, measured, self.rollouts)
        show.show_groups(console, found.rates, self.batch, self.rollouts)
        if measured and measured.gradient:
            show.show_noise(console, measured.gradient, self.batch, self.rollouts)
        else:
            text = "B_eff = B / (r + 1/K) needs r from a pilot's gradients (rftlab pilot): groups with signal alone."
            show.say(console, text, "dim")
        show.show_tries(console, found.rates, self.batch[min(1, len(self.batch) - 1)], self.rollouts)
        if measured:
            show.show_drops(console, found, measured, self.rollouts)
        text = "Of the model as it was measured: pass rates move as it learns. Prompts are drawn independently here."
        show.say(console, text, "dim")
        return 0

    def _measured(self):
        """What the file, the pilot or the log measured, None for two numbers; and a line on where it comes from."""
        from rftlab.studies.forecast.signal.source import imported_rates, pilot_rates, read_rates

        if self.imported is not None:
            return imported_rates(self.results, self.imported, self.rounds)
        if self.file is not None:
            return read_rates(self.file, self.column, self.responses), ""
        return (pilot_rates(self.results, self.pair) if self.pair is not None else None), ""

    def _assumed(self):
        from rftlab.studies.forecast.signal.signal import beta_of
        from rftlab.studies.forecast.signal.source import Fitted

        origin = f"Beta with mean {self.p:g} and deviation {self.spread:g}, as given" if self.spread else "all alike"
        return Fitted(beta_of(self.p, self.spread), None, origin)
