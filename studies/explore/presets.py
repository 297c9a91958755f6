"""Designs of the seven experiments, as choices."""

from rftlab.shared.cards import name_of
from rftlab.shared.design import Design
from rftlab.studies.data.paper.experiments import EXPERIMENTS
from rftlab.studies.explore.choices import Choices, own_value
from rftlab.studies.explore.knobs import BY_NAME, read
from rftlab.studies.explore.starts import start_named

PRESETS_BY_NAME: dict[str, Design] = {
    f"{one.title}: {tick}": cell
    for one in EXPERIMENTS.values()
    for cell, tick in zip(one.cells, one.ticks, strict=True)
}
"""Every cell of every experiment, by its title."""


def choices_of_cell(start: str, cell: Design) -> Choices:
    """The choices that mean a cell, with the pair's own rounds."""
    found = Choices(start, name_of(cell.estimator))
    run = start_named(start)
    for name, field in (("B", "batch_size"), ("K", "rollouts"), ("M", "support_rollouts"), ("window", "replay_window")):
        if own_value(found.origin, name) != getattr(cell, field):
            found = found.moving(name, float(getattr(cell, field)))
    if read(found.origin, BY_NAME["rounds"].path) != run.design.rounds:
        found = found.moving("rounds", float(run.design.rounds))
    return found
