"""Simulations for people who wait: each change cancels what the last one began, and nobody waits for anybody else.

A map over (B, K) runs its cells beside them: which cells there are, in which order they run, and their colours.
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
"""Work of a cell, in rollouts, from which it is left out; and rounds of a cell."""
CONTEXT = 4
"""Rollouts that take as long as a context."""
LOW, HIGH = (239, 245, 251), (8, 48, 107)
"""Colours of the lowest and the highest value."""


class HeatCell(NamedTuple):
    """A cell of the map."""

    batch: int
    group: int
    run: Simulation | None
    """None where it is left out."""
    why: str = ""
    """Why it is left out."""

    @property
    def name(self) -> str:
        """As a reader says it."""
        return f"B {self.batch}, K {self.group}"


def spent_in_all(choices: Choices, axis: Axis, seconds: Callable[[Choices], float | None]) -> float:
    """Rounds, rollouts or seconds of a run: what every cell of a map has. seconds: estimated for a round of choices."""
    design = chosen_run(choices).design
    return design.rounds * per_round(design, axis, seconds(choices) if axis == "seconds" else None)


def heat_cells(choices: Choices, axis: Axis, seconds: Callable[[Choices], float | None]) -> list[HeatCell]:
    """Every cell at as many rounds, rollouts or seconds as the choices have, every second row and column first."""
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
    """Background of a cell, and the colour of its text, of which one of black and white is always 4.5 : 1 against
    it."""
    share = (value - low) / (high - low) if high > low else 0.5
    back = tuple(round(a + share * (b - a)) for a, b in zip(LOW, HIGH, strict=True))
    text = "#000000" if luminance(back) > 0.179 else "#ffffff"
    return f"#{''.join(f'{part:02x}' for part in back)}", text


def luminance(colour: tuple[int, ...]) -> float:
    """Relative luminance of an sRGB colour (WCAG 2.2)."""
    parts = [part / 255 for part in colour]
    linear = [part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


SEEDS = 3
ABREAST = 2
"""Seeds that run at the same time where there are not threads for all."""
PAUSE = 0.005
"""Seconds between two looks whether what waits may go on."""
KEPT = 3
"""Worlds that are kept: a few megabytes each."""


@dataclass
class Job:
    """The runs of one set of choices. Threads write its curves; a page reads them."""

    run: Simulation
    seeds: int = SEEDS
    curves: dict[int, Curve] = field(default_factory=dict)
    """So far, by seed."""
    diverged: dict[int, int] = field(default_factory=dict)
    """Rounds at which seeds diverged."""
    failed: str = ""
    """Why nothing more comes; "" where all is well."""
    ended: int = 0
    """Seeds that are done."""
    signal: float | None = None
    """Over noise, of the gradient; None until it is measured, nan where there is no gradient at all."""
    stop: Event = field(default_factory=Event)
    lock: Condition = field(default_factory=Condition)

    @property
    def done(self) -> bool:
        """Whether nothing more comes."""
        whole = self.ended >= self.seeds and self.signal is not None
        return whole or bool(self.failed) or self.stop.is_set()

    @property
    def share(self) -> float:
        """Part of the rounds that is done."""
        rounds = sum(curve.round[-1] for curve in self.snapshot())
        return 1.0 if self.ended >= self.seeds else rounds / (self.seeds * self.run.design.rounds)

    @property
    def stage(self) -> tuple[bool, bool, bool]:
        """The progress that people wait for: whether all seeds have points to join, one is whole, all are."""
        curves = self.snapshot()
        begun = len(curves) == self.seeds and all(len(curve.round) > 1 for curve in curves)
        return begun, self.ended > 0, self.ended >= self.seeds

    def await_turn(self, seed: int, abreast: int) -> None:
        """Wait until this seed is one of those `abreast` whose turn it is, or the job ends."""
        with self.lock:
            while not (self.stop.is_set() or self.failed or seed in self.ahead(abreast)):
                self.lock.wait(PAUSE)

    def ahead(self, abreast: int) -> list[int]:
        """Seeds whose turn it is: all until they have points; then, where there are not threads for all, the first
        alone, because the browser that draws it wants a processor too; then those that are least far."""
        rounds, far = self.run.design.rounds, {seed: len(curve.round) for seed, curve in self.curves.items()}
        ended = {seed for seed, curve in self.curves.items() if curve.round[-1] == rounds} | self.diverged.keys()
        order = sorted(self.curves.keys() - ended, key=lambda seed: (far[seed] > 1, seed > 0, far[seed], seed))
        alone = abreast < self.seeds and order[:1] == [0] and self.stage[0]
        return order[: 1 if alone else abreast]

    def snapshot(self) -> list[Curve]:
        """The curves so far, in the order of their seeds."""
        with self.lock:
            return [self.curves[seed] for seed in sorted(self.curves)]


@dataclass
class HeatJob:
    """The map over (B, K) while it fills."""

    cells: list[HeatCell]
    values: dict[tuple[int, int], float] = field(default_factory=dict)
    """Test Pass@1 by (B, K); 0 for a run that diverged."""
    failed: str = ""
    stop: Event = field(default_factory=Event)

    @property
    def done(self) -> bool:
        """Whether nothing more comes."""
        whole = sum(cell.run is not None for cell in self.cells)
        return len(self.values) >= whole or bool(self.failed) or self.stop.is_set()


class Bench:
    """Threads that simulate, and the worlds that they share."""

    def __init__(self, threads: int):
        self.abreast = max(threads, ABREAST)
        self._worlds: dict[Environment, World] = {}
        self._building = Lock()
        self._pool = ThreadPoolExecutor(max(threads, SEEDS), "simulate")  # seeds go side by side: their mean grows
        self._slow = ThreadPoolExecutor(max(1, threads - 1), "map")
        self._quick = 0
        self._count = Lock()

    def world(self, environment: Environment, stopped: Callable[[], bool]) -> World:
        """One of the last few worlds, each built by one thread while those that need it wait. Raises Stopped where
        nobody wants it any more."""
        with self._building:
            if stopped():
                raise Stopped
            world = self._worlds.pop(environment, None) or build(environment)
            self._worlds[environment] = world  # behind the others, so that the first is the one unused for longest
            if len(self._worlds) > KEPT:
                del self._worlds[next(iter(self._worlds))]
            return world

    def start(self, run: Simulation, seeds: int = SEEDS) -> Job:
        """Begin the runs of a design."""
        job = Job(run, seeds)
        for seed in range(seeds):
            self._submit(job, partial(self._one, job, seed))
        self._submit(job, partial(self._measure, job))
        return job

    def warm(self, run: Simulation) -> None:
        """Build a run's world and load the compiled code, before somebody waits for them."""
        self.start(replace(run, design=replace(run.design, rounds=1, eval_every=1)), 1)

    def _measure(self, job: Job) -> None:
        world = self.world(job.run.environment, job.stop.is_set)
        signal, noise = gradient_signal(job.run, world, job.stop.is_set)
        job.signal = signal / noise if noise > 0 else float("nan")

    def fill(self, cells: list[HeatCell]) -> HeatJob:
        """Begin a map. Its cells wait while a visitor's curve runs."""
        job = HeatJob(cells)
        for cell in cells:
            if cell.run is not None:
                self._slow.submit(_guarded, job, partial(self._fill_one, job, cell, cell.run))
        return job

    def _fill_one(self, job: HeatJob, cell: HeatCell, run: Simulation) -> None:
        def stopped() -> bool:
            """Whether to stop; asked between pieces of a run, and answered when it is this one's turn."""
            while self._quick > 0 and not job.stop.wait(PAUSE):
                pass
            return job.stop.is_set()

        # who holds the worlds must not wait for others, who may wait for a world
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
        """One seed from beginning to end."""
        world = self.world(job.run.environment, job.stop.is_set)

        def keep(curve: Curve) -> None:
            with job.lock:
                job.curves[seed] = curve
                job.lock.notify_all()

        def stopped() -> bool:
            """Whether to stop; asked between pieces of a run, and answered when it is this seed's turn."""
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
    """Work of a job: what goes wrong ends the job with a line, and the thread goes on with other jobs."""
    try:
        if not job.stop.is_set():
            work()
    except Stopped:
        job.stop.set()
    except UserError as error:
        job.failed = str(error)
    except Exception as error:  # a defect of ours: the page says it, the server stays
        job.failed = plain(f"{type(error).__name__}: {error}")[:300]
