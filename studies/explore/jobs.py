"""Run simulations for visitors who wait: each change cancels the run before it, and visitors do not wait for each
other.

A map over (B, K) runs its cells beside them. This module defines its cells, their order, and their colours.
"""

from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from functools import partial
from math import isfinite
from threading import Condition, Event, Lock
from typing import NamedTuple

from rftlab.shared.curve import Curve
from rftlab.shared.plumbing.errors import UserError, plain
from rftlab.sim.config import Environment, Simulation
from rftlab.sim.environments import build
from rftlab.sim.run import Stopped, simulate
from rftlab.sim.world import World
from rftlab.studies.explore.chart import Axis, per_round
from rftlab.studies.explore.choices import Choices, chosen_run
from rftlab.studies.explore.measures import gradient_signal

BATCHES = tuple(2**i for i in range(3, 11))
GROUPS = tuple(2**i for i in range(7))
DEAR, MOST_ROUNDS, FEWEST = 4e7, 20_000, 10
"""Work of a cell, in rollouts, above which it is left out, and most and fewest rounds of a cell."""
CONTEXT = 4
"""Number of rollouts that take as long as a context."""
LOW, HIGH = (239, 245, 251), (8, 48, 107)
"""Colours of the lowest and the highest value."""


class HeatCell(NamedTuple):
    """Cell of the map."""

    batch: int
    group: int
    run: Simulation | None
    """Run of the cell; None where it is left out."""
    why: str = ""
    """Reason why the cell is left out."""

    @property
    def name(self) -> str:
        """Name of the cell for readers."""
        return f"B {self.batch}, K {self.group}"


def spent_in_all(choices: Choices, axis: Axis, seconds: Callable[[Choices], float | None]) -> float:
    """Return the rounds, rollouts or seconds of a run, which all cells of a map have. seconds: function that estimates
    the seconds of a round of choices."""
    design = chosen_run(choices).design
    return design.rounds * per_round(design, axis, seconds(choices) if axis == "seconds" else None)


def heat_cells(choices: Choices, axis: Axis, seconds: Callable[[Choices], float | None]) -> list[HeatCell]:
    """Return every cell, with as many rounds, rollouts or seconds as the choices have, every second row and column
    first."""
    total = spent_in_all(choices, axis, seconds)
    places = [(i, j) for i in range(len(BATCHES)) for j in range(len(GROUPS))]
    ordered = sorted(places, key=lambda place: any(number % 2 for number in place))
    return [_cell(choices, axis, total, seconds, BATCHES[i], GROUPS[j]) for i, j in ordered]


def _cell(
    choices: Choices, axis: Axis, total: float, seconds: Callable[[Choices], float | None], batch: int, group: int
) -> HeatCell:
    try:
        wanted = choices.moving("B", batch).moving("K", group)
        run = chosen_run(wanted)
        rounds = total / per_round(run.design, axis, seconds(wanted) if axis == "seconds" else None)
        if not isfinite(rounds) or not FEWEST <= rounds <= MOST_ROUNDS:
            return HeatCell(batch, group, None, f"{rounds:,.0f} rounds")
        work = rounds * batch * (group + run.design.support_rollouts + CONTEXT)
        if work > DEAR:
            return HeatCell(batch, group, None, "too long")
        once = replace(run.design, rounds=int(rounds), eval_every=int(rounds))
        return HeatCell(batch, group, replace(run, design=once))
    except UserError as error:
        return HeatCell(batch, group, None, str(error))


def cell_colours(value: float, low: float, high: float) -> tuple[str, str]:
    """Return the background of a cell and the colour of its text: black or white, of which one always has a contrast of
    4.5 : 1."""
    share = (value - low) / (high - low) if high > low else 0.5
    back = tuple(round(a + share * (b - a)) for a, b in zip(LOW, HIGH, strict=True))
    text = "#000000" if luminance(back) > 0.179 else "#ffffff"
    return f"#{''.join(f'{part:02x}' for part in back)}", text


def luminance(colour: tuple[int, ...]) -> float:
    """Return the relative luminance of an sRGB colour (WCAG 2.2)."""
    parts = [part / 255 for part in colour]
    linear = [part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


SEEDS = 3
ABREAST = 2
"""Least number of seeds that run at the same time, even on fewer threads."""
PAUSE = 0.005
"""Seconds between two checks whether a waiting run may go on."""
KEPT = 3
"""Number of worlds that are kept; each takes a few megabytes."""


@dataclass
class Job:
    """Runs of one set of choices. Threads write its curves; a page reads them."""

    run: Simulation
    seeds: int = SEEDS
    curves: dict[int, Curve] = field(default_factory=dict)
    """Curves so far, by seed."""
    diverged: dict[int, int] = field(default_factory=dict)
    """Rounds at which seeds diverged."""
    failed: str = ""
    """Reason why the job failed; "" where it did not."""
    ended: int = 0
    """Number of finished seeds."""
    signal: float | None = None
    """Signal-to-noise ratio of the gradient; None until it is measured, nan where there is no gradient at all."""
    stop: Event = field(default_factory=Event)
    lock: Condition = field(default_factory=Condition)

    @property
    def done(self) -> bool:
        """Whether the job is over: complete, failed or stopped."""
        whole = self.ended >= self.seeds and self.signal is not None
        return whole or bool(self.failed) or self.stop.is_set()

    @property
    def share(self) -> float:
        """Fraction of the rounds that are done."""
        rounds = sum(curve.round[-1] for curve in self.snapshot())
        return 1.0 if self.ended >= self.seeds else rounds / (self.seeds * self.run.design.rounds)

    @property
    def stage(self) -> tuple[bool, bool, bool]:
        """Stage of progress: whether all seeds have two points, whether one seed is finished, and whether all are."""
        curves = self.snapshot()
        begun = len(curves) == self.seeds and all(len(curve.round) > 1 for curve in curves)
        return begun, self.ended > 0, self.ended >= self.seeds

    def await_turn(self, seed: int, abreast: int) -> None:
        """Wait until this seed is one of the `abreast` seeds that may run, or the job ends."""
        with self.lock:
            while not (self.stop.is_set() or self.failed or seed in self.ahead(abreast)):
                self.lock.wait(PAUSE)

    def ahead(self, abreast: int) -> list[int]:
        """Return the seeds that may run: all until they have points. Then, where there are not threads for all, the
        first seed alone, because the browser that draws it needs a processor too; after it the least advanced seeds."""
        rounds, far = self.run.design.rounds, {seed: len(curve.round) for seed, curve in self.curves.items()}
        ended = {seed for seed, curve in self.curves.items() if curve.round[-1] == rounds} | self.diverged.keys()
        order = sorted(self.curves.keys() - ended, key=lambda seed: (far[seed] > 1, seed > 0, far[seed], seed))
        alone = abreast < self.seeds and order[:1] == [0] and self.stage[0]
        return order[: 1 if alone else abreast]

    def snapshot(self) -> list[Curve]:
        """Return the curves so far, in the order of their seeds."""
        with self.lock:
            return [self.curves[seed] for seed in sorted(self.curves)]


@dataclass
class HeatJob:
    """Job that fills the map over (B, K)."""

    cells: list[HeatCell]
    values: dict[tuple[int, int], float] = field(default_factory=dict)
    """Test Pass@1 by (B, K); 0 for a run that diverged."""
    failed: str = ""
    stop: Event = field(default_factory=Event)

    @property
    def done(self) -> bool:
        """Whether the job is over: complete, failed or stopped."""
        whole = sum(cell.run is not None for cell in self.cells)
        return len(self.values) >= whole or bool(self.failed) or self.stop.is_set()


class Bench:
    """Threads that simulate, with the worlds that they share."""

    def __init__(self, threads: int):
        self.abreast = max(threads, ABREAST)
        self._worlds: dict[Environment, World] = {}
        self._building = Lock()
        self._pool = ThreadPoolExecutor(max(threads, SEEDS), "simulate")  # seeds run together, so that their mean grows
        self._slow = ThreadPoolExecutor(max(1, threads - 1), "map")
        self._quick = 0
        self._count = Lock()

    def world(self, environment: Environment, stopped: Callable[[], bool]) -> World:
        """Return the world of an environment, one of the last few, which is built by one thread while others wait for
        it. Raises Stopped where the run was stopped."""
        with self._building:
            if stopped():
                raise Stopped
            world = self._worlds.pop(environment, None) or build(environment)
            self._worlds[environment] = world  # moved to the end, so that the first is the least recently used
            if len(self._worlds) > KEPT:
                del self._worlds[next(iter(self._worlds))]
            return world

    def start(self, run: Simulation, seeds: int = SEEDS) -> Job:
        """Begin the runs of a design, and return their job."""
        job = Job(run, seeds)
        for seed in range(seeds):
            self._submit(job, partial(self._one, job, seed))
        self._submit(job, partial(self._measure, job))
        return job

    def warm(self, run: Simulation) -> None:
        """Build a run's world and load the compiled code before a visitor waits for them."""
        self.start(replace(run, design=replace(run.design, rounds=1, eval_every=1)), 1)

    def _measure(self, job: Job) -> None:
        world = self.world(job.run.environment, job.stop.is_set)
        signal, noise = gradient_signal(job.run, world, job.stop.is_set)
        job.signal = signal / noise if noise > 0 else float("nan")

    def fill(self, cells: list[HeatCell]) -> HeatJob:
        """Begin a map, and return its job. Its cells wait while a visitor's curve runs."""
        job = HeatJob(cells)
        for cell in cells:
            if cell.run is not None:
                self._slow.submit(_guarded, job, partial(self._fill_one, job, cell, cell.run))
        return job

    def _fill_one(self, job: HeatJob, cell: HeatCell, run: Simulation) -> None:
        def stopped() -> bool:
            """Return whether to stop, once no visitor's curve runs; called between pieces of the run."""
            while self._quick > 0 and not job.stop.wait(PAUSE):
                pass
            return job.stop.is_set()

        # the lock on worlds must not be held while waiting for curves, which may need a world themselves
        world = self.world(run.environment, job.stop.is_set)
        outcome = simulate(run, world, stopped=stopped)
        ended = outcome.diverged_at is None
        job.values[cell.batch, cell.group] = float(outcome.curve.test_pass_at_1[-1]) if ended else 0.0

    def _submit(self, job: Job, work: Callable[[], None]) -> None:
        # the count rises when work is queued, so that a map waits for curves that have not begun
        with self._count:
            self._quick += 1
        self._pool.submit(_guarded, job, work).add_done_callback(self._one_less)

    def _one_less(self, _: Future) -> None:
        with self._count:
            self._quick -= 1

    def _one(self, job: Job, seed: int) -> None:
        """Run one seed from beginning to end."""
        world = self.world(job.run.environment, job.stop.is_set)

        def keep(curve: Curve) -> None:
            with job.lock:
                job.curves[seed] = curve
                job.lock.notify_all()

        def stopped() -> bool:
            """Return whether to stop, once it is this seed's turn; called between pieces of the run."""
            job.await_turn(seed, self.abreast)
            return job.stop.is_set()

        outcome = simulate(replace(job.run, seed=seed), world, stopped=stopped, watch=keep)
        with job.lock:
            job.curves[seed] = outcome.curve
            if outcome.diverged_at is not None:
                job.diverged[seed] = outcome.diverged_at
            job.ended += 1
            job.lock.notify_all()


def _guarded(job: Job | HeatJob, work: Callable[[], None]) -> None:
    """Do the work of a job. An error ends the job with a line of text, and the thread goes on with other jobs."""
    try:
        if not job.stop.is_set():
            work()
    except Stopped:
        job.stop.set()
    except UserError as error:
        job.failed = str(error)
    except Exception as error:  # a defect of the code: the page shows it, and the server stays up
        job.failed = plain(f"{type(error).__name__}: {error}")[:300]
