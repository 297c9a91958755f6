"""The command line of `rftlab compare`: levels against each other."""

from dataclasses import dataclass
from typing import Literal

import tyro
from rich.console import Console

from rftlab.shared.plumbing.errors import MAX_SEED, check_count
from rftlab.studies.cli.common import Common
from rftlab.studies.data.runs.limits import check_size

AxisName = Literal["rounds", "fraction", "rollouts", "tokens", "seconds"]


@dataclass(frozen=True)
class Compare(Common):
    """Compare two or three sources of runs side by side.

    Does the cheap level tell what the expensive one does?

    A level is LEVEL:PAIR. sim:qwen-gsm8k is simulated where the results folder lacks it (minutes); llm:tiny-mix97 comes
    from the results folder or from the reference runs that come with rftlab; published:qwen-gsm8k is what arXiv
    2601.22532 reports, endpoints alone. Pairs may differ. imported:NAME is what `rftlab import` keeps, whatever its
    designs and tasks; imported:NAME/TASK or imported:NAME#RUN is a part of it. public:SOURCE is one of `rftlab dev
    public` whose numbers come with rftlab. train:FOLDER is a run of `rftlab train`, or all that lie in a folder.

        rftlab compare sim:qwen-gsm8k published:qwen-gsm8k
        rftlab compare llm:tiny-mix97 llm:tiny-mod97 --axis rollouts
        rftlab compare sim:qwen-gsm8k llm:tiny-mix97 published:qwen-gsm8k
        rftlab compare imported:mine imported:theirs
        rftlab compare public:pods/gsm8k public:kaip598
        rftlab compare train:results/short train:results/long

    Writes RESULTS/compare-NAMES/compare.html: curves overlaid, errors and rank agreement with intervals, every claim
    with its sign at each level, and where levels disagree the gradients' signal-to-noise, contexts without signal and
    pass rates behind it. With an imported level: curves, ends, gains, noise and common designs.
    """

    levels: tyro.conf.Positional[tuple[str, ...]] = ()
    """Two or three of LEVEL:PAIR; `rftlab --help` lists the pairs."""
    axis: AxisName = "rounds"
    """What curves are drawn against; trade-off curves stand where every design has spent as much. fraction: of the
    planned rounds."""
    seeds: int | None = None
    """Seeds of simulated levels; those of the folder's study if left out, else 5."""
    rounds: int | None = None
    """Rounds of simulated levels; those of the folder's study if left out, else the pair's own 2000."""
    seed: int = 0
    """Of the resampling."""

    def __post_init__(self):
        super().__post_init__()
        check_size(self.seeds, self.rounds)
        check_count("seed", self.seed, 0, MAX_SEED)

    def execute(self, console: Console) -> int:
        """Load or simulate the levels, compare them, write the page."""
        from rftlab.studies.analysis.compare.compare import write
        from rftlab.studies.analysis.compare.free import SimulationRuns, compare
        from rftlab.studies.analysis.compare.levels import load
        from rftlab.studies.analysis.source import curve_sets
        from rftlab.studies.data.runs.store import open_store

        sources = curve_sets(list(self.levels))
        runs = SimulationRuns(self.seeds, self.rounds, self.threads, self.quiet, self.engine)
        if any(source.free for source in sources):
            compare(console, sources, self.results, self.axis, runs)
            return 0
        root = open_store(self.results)
        levels = load(console, sources, root, *runs)
        write(console, levels, root, self.axis, self.seed, self.quiet)
        return 0
