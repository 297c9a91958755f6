"""The command line of `rftlab pilot`."""

from dataclasses import dataclass, field
from typing import Annotated

import tyro
from rich.console import Console

from rftlab.llm.probe_config import ProbeConfig
from rftlab.shared.plumbing.errors import check
from rftlab.studies.cli.common import Common
from rftlab.studies.console.table import say
from rftlab.studies.forecast.pilot.grid import PILOT_CELLS

PAIR = "tiny-mix97"


@dataclass(frozen=True)
class Pilot(Common):
    """Measure on a real model what the simulator needs.

    That is pass rates, format, gradient noise, lengths, and the curves of a few designs; and what the base model could
    already do: colder, by a vote, in many tries.

    r, the noise between questions over that of a response, comes with an interval. Each number is printed with what it
    says. Before anything is sampled the command says how many rollouts it will take: by default 5.2% of those of the
    whole grid of `tiny`, 0.5% without the runs (--designs with nothing). The runs are those of the grid, which finds
    them in the results folder and does not run them again. Safe to interrupt: run the same command again and it goes on
    where it stopped.
    """

    pair: str = PAIR
    """Model-dataset pair of level llm."""
    designs: tuple[str, ...] = PILOT_CELLS
    """Designs of the grid that are run, by their labels."""
    rounds: int | None = None
    """Rounds of these runs; the pair's own if left out. A shorter run is a run of its own: the grid does not use it."""
    midway: bool = True
    """Train the baseline for half of its rounds and measure gradients there too, where r and phi are what the law
    takes."""
    reported: float | None = None
    """Score that the model's makers report for the task, 0 to 1; of a base model that of its instruct sibling. Says
    where such runs end and what a run must reach before anything was learned."""
    sibling: bool = False
    """The reported score is that of the instruct sibling."""
    config: Annotated[ProbeConfig, tyro.conf.arg(name="")] = field(default_factory=ProbeConfig)
    """What is measured on the base model."""

    def __post_init__(self):
        super().__post_init__()
        if self.reported is not None:
            check(0 < self.reported < 1, f"reported = {self.reported:g}; allowed: above 0 and below 1, a Pass@1")
        check(self.reported is not None or not self.sibling, "sibling; allowed: with --reported, the sibling's score")

    def execute(self, console: Console) -> int:
        """Measure, or read what was measured, and print it."""
        from rftlab.studies.forecast.pilot.run import pilot, wanted
        from rftlab.studies.forecast.pilot.show import show_pilot
        from rftlab.studies.forecast.pilot.store import pilot_path

        found = pilot(
            console,
            wanted(self.pair, self.designs, self.rounds, self.config, self.midway),
            self.results,
            self.threads,
            self.quiet,
            self.engine,
        )
        show_pilot(console, found)
        if self.reported is not None:
            from rftlab.studies.analysis.public.credit import ending_lines

            for line in ending_lines(self.reported, "base" if self.sibling else "instruct"):
                say(console, line)
        if found.base.headroom is not None:
            from rftlab.shared.plumbing.folders import folder_below
            from rftlab.studies.forecast.pilot.figures import headroom_figure
            from rftlab.studies.report.draw import save

            figure, numbers = headroom_figure(self.pair, found.base.headroom)
            place = save(figure, folder_below(self.results, "pilot", self.pair), "headroom", numbers)
            say(console, f"figure: {place}")
        say(console, f"pilot: {pilot_path(self.results, self.pair)}")
        return 0
