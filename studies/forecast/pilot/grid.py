"""The grid of designs that forecasts are made for, and those of it that a pilot runs."""

from rftlab.shared.design import Design
from rftlab.shared.plumbing.errors import check, check_choice
from rftlab.studies.data.paper.experiments import EXPERIMENTS, distinct_cells, label

CELLS: dict[str, Design] = {label(cell): cell for cell in distinct_cells(list(EXPERIMENTS.values()))}
"""The grid: the 25 designs of the seven experiments by their labels."""
PILOT_CELLS = ("32x1-minimalist", "32x8-paper_text", "256x1-paper_text", "32x1w8-paper_text")
"""Designs that a pilot runs unless told otherwise: 576 of the 12,288 rollouts of the grid's rounds. They differ in
batch size, rollouts and baseline."""


def check_cells(cells: tuple[str, ...]) -> None:
    """Raise UserError unless cells are different designs of the grid."""
    for cell in cells:
        check_choice("design", cell, tuple(CELLS))
    check(len(set(cells)) == len(cells), f"designs: {', '.join(cells)} names one twice")


def midway_round(design: Design) -> int:
    """The round half way through a run, where r and phi are measured beside those of the base policy."""
    return max(1, design.rounds // 2)
