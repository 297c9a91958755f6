"""Designs that a command line asks a forecast of, whatever the grid: BxK, and BxK@RATE."""

from typing import NamedTuple

from rftlab.shared.design import Design
from rftlab.shared.plumbing.errors import check
from rftlab.studies.forecast.imported import MAX_ROLLOUTS, Imported, known_rates


class FreeDesign(NamedTuple):
    """A design to forecast, whatever the grid."""

    design: Design
    learning_rate: float | None
    """That of the runs if None."""

    @property
    def label(self) -> str:
        """BxK, with its learning rate where one was named: 32x8@1e-05."""
        rate = "" if self.learning_rate is None else f"@{self.learning_rate:g}"
        return f"{self.design.batch_size}x{self.design.rollouts}{rate}"


def designs_from(texts: tuple[str, ...], imported: Imported, quick: bool = False) -> tuple[FreeDesign, ...]:
    """Designs BxK or BxK@RATE as the command line has them, for the rounds, the advantage and the updates of the first
    run, and for its learning rate where runs have several; those of the runs where none is named. Raises UserError for
    anything else, and unless `quick` for what is too large for the simulator."""
    runs, several = imported.evidence.runs, len(known_rates(imported)) > 1
    asked = [_parsed(text) for text in texts] or [
        (run.design.batch_size, run.design.rollouts, run.learning_rate if several else None) for run in runs
    ]
    if several or any(rate is not None for *_, rate in asked):
        known = all(run.learning_rate is not None for run in runs)
        check(known, f"{imported.name}: a learning rate is not known; allowed: runs that all have one (#RUN)")
    usual = runs[0].learning_rate if several else None
    sized = [
        (_free(runs[0].design, batch, rollouts, imported.rounds), rate or usual) for batch, rollouts, rate in asked
    ]
    designs = tuple(dict.fromkeys(FreeDesign(*one) for one in sized))
    if quick:
        return designs
    widest, there = max(one.design.batch_size for one in designs), imported.evidence.facts.n_train
    check(widest <= there, f"a design of {widest} prompts; allowed: at most {there}, the training questions")
    most = max(one.design.batch_size * one.design.rollouts * one.design.rounds for one in designs)
    check(most <= MAX_ROLLOUTS, f"a design of {most:,} rollouts; allowed: at most {MAX_ROLLOUTS:,}")
    return designs


def _parsed(text: str) -> tuple[int, int, float | None]:
    """B, K and the learning rate of BxK or BxK@RATE."""
    sizes, at, rate = text.partition("@")
    batch, _, rollouts = sizes.partition("x")
    whole = all(part.isdecimal() and part.isascii() and 1 <= int(part[:9]) <= 65536 for part in (batch, rollouts))
    check(whole, f"design = {text!r}; allowed: BxK or BxK@RATE, such as 32x8 or 32x8@1e-6, B and K from 1 to 65536")
    if not at:
        return int(batch), int(rollouts), None
    try:
        value = float(rate)
    except ValueError:
        value = 0.0
    check(0 < value <= 1, f"design = {text!r}; allowed: a learning rate above 0 and up to 1 behind @")
    return int(batch), int(rollouts), value


def _free(first: Design, batch: int, rollouts: int, rounds: int) -> Design:
    parts = first.minibatches if batch % first.minibatches == 0 else 1
    return Design(
        batch,
        rollouts,
        estimator=first.estimator,
        rounds=rounds,
        eval_every=rounds,
        epochs=first.epochs,
        minibatches=parts,
    )
