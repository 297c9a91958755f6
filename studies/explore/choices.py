"""The choices of a user, as data that fits in an address; and the run that they mean."""

from dataclasses import dataclass, fields, is_dataclass, replace
from typing import Any
from urllib.parse import parse_qsl, urlencode

from rftlab.shared.cards import CARDS, PRESETS, estimator_name, preset
from rftlab.shared.config.kl import KL
from rftlab.shared.design import Design
from rftlab.shared.plumbing.errors import UserError, check, check_choice
from rftlab.sim.config import Simulation
from rftlab.studies.data.paper.experiments import EXPERIMENTS
from rftlab.studies.explore.knobs import BY_NAME, KNOBS, read_knob
from rftlab.studies.explore.starts import start_named, start_names

BATCH, ROLLOUTS = 32, 8
"""The design that the explorer opens with."""
EVALUATIONS = 20
"""Of a run, beside the first, as in the paper."""
LARGE, FINER = 4096, 2
"""Responses and contexts of a round beyond which the curve has so many more evaluations: its first points come
sooner."""
MAX_ROLLOUTS, MAX_UPDATES = 1 << 18, 64
"""Of a round: more would take a minute a curve."""
MAX_ADDRESS = 20_000
"""Characters of an address that are read."""
PRESETS_BY_NAME: dict[str, Design] = {
    f"{one.title}: {tick}": cell
    for one in EXPERIMENTS.values()
    for cell, tick in zip(one.cells, one.ticks, strict=True)
}
"""Every cell of every experiment, by its title."""


@dataclass(frozen=True)
class Choices:
    """One curve's choices: where it starts, its estimator, and the sliders that were moved."""

    start: str = "qwen-gsm8k"
    """A pair of the simulator, or a calibration."""
    estimator: str = "paper_text"
    """A card that can run."""
    moved: tuple[tuple[str, float], ...] = ()
    """Names of knobs and their values, in the order of KNOBS."""

    def __post_init__(self):
        check_choice("start", self.start, start_names())
        check_choice("estimator", self.estimator, tuple(PRESETS))
        for name, _ in self.moved:
            check_choice("knob", name, tuple(BY_NAME))

    def moving(self, name: str, value: float) -> "Choices":
        """The same with a slider at a value."""
        values = dict(self.moved) | {name: value}
        return replace(self, moved=tuple((knob.name, values[knob.name]) for knob in KNOBS if knob.name in values))

    def value(self, name: str) -> float:
        """Where a slider is."""
        return dict(self.moved).get(name, own_value(self.origin, name))

    @property
    def origin(self) -> Simulation:
        """The run before any slider was moved: the pair's simulation with the explorer's first design and the
        estimator, as its card runs it."""
        own, card = start_named(self.start), CARDS[self.estimator]
        window = max(card.replay_window, ROLLOUTS) if card.replay_window else 0
        design = Design(BATCH, ROLLOUTS, 0, window, preset(self.estimator), card.sampling, own.design.rounds)
        return replace(own, design=design)


def own_value(run: Simulation, name: str) -> float:
    """The value of a knob in a run; a KL penalty that is not there counts as 0."""
    path = BY_NAME[name].path
    if path.endswith("kl.coef") and run.design.estimator.kl.kind == "none":
        return 0.0
    return read_knob(run, path)


def chosen_run(choices: Choices) -> Simulation:
    """The run that choices mean. Raises UserError where there is none."""
    values: dict[str, Any] = {}
    for name, value in choices.moved:
        knob = BY_NAME[name]
        values[knob.path] = int(value) if knob.whole else float(value)
    origin = choices.origin
    coefficient = values.pop("design.estimator.kl.coef", None)
    if coefficient is not None:
        values["design.estimator.kl"] = _penalty(origin.design.estimator.kl, coefficient)
    rounds = values.get("design.rounds", origin.design.rounds)
    run = _changed(origin, values | {"design.eval_every": _interval(int(rounds), 1)})
    design = run.design
    responses = design.round_rollouts * design.sampling.tries
    updates = design.epochs * design.minibatches
    check(responses <= MAX_ROLLOUTS, f"{responses:,} rollouts a round; allowed here: at most {MAX_ROLLOUTS:,}")
    check(updates <= MAX_UPDATES, f"{updates} updates a round; allowed here: at most {MAX_UPDATES}")
    every = _interval(design.rounds, FINER if responses + 2 * design.batch_size > LARGE else 1)
    return replace(run, design=replace(design, eval_every=every))


def _interval(rounds: int, finer: int) -> int:
    """Rounds between two evaluations."""
    counts = (EVALUATIONS * finer, EVALUATIONS, *range(2 * EVALUATIONS, 0, -1))
    return next(rounds // count for count in counts if rounds % count == 0)


def _penalty(own: KL, coefficient: float) -> KL:
    """A KL penalty of that size: the estimator's own kind, or k3 in the loss where it has none; none for 0."""
    if coefficient == 0:
        return replace(own, kind="none")
    return replace(own, kind="k3" if own.kind == "none" else own.kind, coef=coefficient)


def _changed(part: Any, values: dict[str, Any]) -> Any:
    """A copy with values at paths, each class made once, so that it checks what belongs together."""
    inner: dict[str, dict[str, Any]] = {}
    own: dict[str, Any] = {}
    for path, value in values.items():
        name, _, rest = path.partition(".")
        if rest:
            inner.setdefault(name, {})[rest] = value
        else:
            own[name] = value
    for name, below in inner.items():
        own[name] = _changed(own.get(name, getattr(part, name)), below)
    known = {field.name for field in fields(part)} if is_dataclass(part) else set()
    check(set(own) <= known, f"{type(part).__name__} has no {', '.join(sorted(set(own) - known))}")
    return replace(part, **own)


def cell_choices(start: str, cell: Design) -> Choices:
    """The choices that mean a cell, with the pair's own rounds."""
    choices = Choices(start, estimator_name(cell.estimator))
    run = start_named(start)
    for name, field in (("B", "batch_size"), ("K", "rollouts"), ("M", "support_rollouts"), ("window", "replay_window")):
        if own_value(choices.origin, name) != getattr(cell, field):
            choices = choices.moving(name, float(getattr(cell, field)))
    if read_knob(choices.origin, BY_NAME["rounds"].path) != run.design.rounds:
        choices = choices.moving("rounds", float(run.design.rounds))
    return choices


def to_query(choices: Choices) -> str:
    """Choices as the part of an address behind the question mark."""
    pairs = [("start", choices.start), ("estimator", choices.estimator)]
    return urlencode(pairs + [(name, f"{value:.10g}") for name, value in choices.moved])


def from_query(text: str) -> Choices:
    """Choices from an address; names of others are passed over. Raises UserError for a value that is none."""
    choices = Choices()
    for name, value in pairs_in(text):
        if name == "start":
            choices = replace(choices, start=value)
        elif name == "estimator":
            choices = replace(choices, estimator=value)
        elif name in BY_NAME:
            choices = choices.moving(name, BY_NAME[name].parsed(value))
    return choices


def pairs_in(text: str) -> list[tuple[str, str]]:
    """Names and values of an address. Raises UserError for one that is too long or no address."""
    check(len(text) <= MAX_ADDRESS, f"the address has {len(text)} characters; allowed: at most {MAX_ADDRESS}")
    try:
        return parse_qsl(text, keep_blank_values=True, max_num_fields=400)
    except ValueError as error:
        raise UserError(f"the address cannot be read: {error}") from None
