"""The map over (B, K): which cells there are, in which order they run, and their colours."""

from collections.abc import Callable
from dataclasses import replace
from math import isfinite
from typing import NamedTuple

from rftlab.shared.plumbing.errors import UserError
from rftlab.sim.config import Simulation
from rftlab.studies.explore.chart import Axis
from rftlab.studies.explore.choices import Choices, chosen_run

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
    own = chosen_run(choices)
    return _spent(choices, own, axis, seconds) * own.design.rounds


def heat_cells(choices: Choices, axis: Axis, seconds: Callable[[Choices], float | None]) -> list[HeatCell]:
    """Every cell at as many rounds, rollouts or seconds as the choices have, every second row and column first."""
    total = spent_in_all(choices, axis, seconds)
    places = [(i, j) for i in range(len(BATCHES)) for j in range(len(GROUPS))]
    ordered = sorted(places, key=lambda place: (place[0] % 2 or place[1] % 2) and 1)
    return [_cell(choices, axis, total, seconds, BATCHES[i], GROUPS[j]) for i, j in ordered]


def _spent(choices: Choices, run: Simulation, axis: Axis, seconds: Callable[[Choices], float | None]) -> float:
    """Return the cost of a round along an axis."""
    design = run.design
    if axis == "rounds":
        return 1.0
    if axis == "rollouts":
        return design.round_rollouts
    return seconds(choices) or float("nan")


def _cell(
    choices: Choices, axis: Axis, total: float, seconds: Callable[[Choices], float | None], batch: int, group: int
) -> HeatCell:
    try:
        wanted = choices.moving("B", batch).moving("K", group)
        run = chosen_run(wanted)
        rounds = total / _spent(wanted, run, axis, seconds)
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
