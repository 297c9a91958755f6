"""Define the choices of a user and the state of a page, as data that fit in an address, and the run that they stand
for.

Sliders are data: each names the field of a run that it sets, and the values at which it stops. A new slider is one line
of `KNOBS`: its name in the address, the path to its field, its stops and its title. `--help` has its description.
"""

import ast
import inspect
from dataclasses import dataclass, fields, replace
from functools import cache
from itertools import pairwise
from math import isfinite
from operator import attrgetter
from textwrap import dedent
from typing import Any, Literal, NamedTuple, cast, get_args
from urllib.parse import parse_qsl, urlencode

from rftlab.llm.budget.devices import GpuName
from rftlab.shared.cards import CARDS, PRESETS, estimator_name, preset
from rftlab.shared.config.kl import KL
from rftlab.shared.design import Design
from rftlab.shared.plumbing.errors import UserError, check, check_choice, plain
from rftlab.sim.config import Linear, Optimizer, Simulation
from rftlab.studies.data.paper.experiments import EXPERIMENTS
from rftlab.studies.explore.chart import AXES, Axis
from rftlab.studies.explore.measures import start_named, start_names

Stops = Literal["value", "times", "plus"]


@cache
def field_sentences(kind: type) -> dict[str, str]:
    """Return the docstrings of the fields that a class itself declares, each as one line."""
    body = next(node for node in ast.parse(dedent(inspect.getsource(kind))).body if isinstance(node, ast.ClassDef)).body
    sentences = {}
    for field, below in pairwise(body):
        text = below.value if isinstance(below, ast.Expr) else None
        if isinstance(field, ast.AnnAssign) and isinstance(text, ast.Constant) and isinstance(text.value, str):
            sentences[ast.unparse(field.target)] = " ".join(text.value.split())
    return sentences


def field_help(kind: type, field: str) -> str:
    """Return the docstring of a field. Raises KeyError where it has none."""
    return field_sentences(kind)[field]


class ExplorerKnob(NamedTuple):
    """Slider that sets a field of the run."""

    name: str
    """Name in the address."""
    kind: type
    """Class whose field the slider sets."""
    path: str
    """Path from the run to the field."""
    title: str
    group: str
    stops: tuple[float, ...]
    scale: Stops = "value"
    """Meaning of the stops: values, factors of the start's value, or distances from it."""

    @property
    def whole(self) -> bool:
        """Whether the values are whole numbers."""
        field = self.path.rsplit(".", 1)[-1]
        return next(one.type for one in fields(self.kind) if one.name == field) in (int, "int")

    @property
    def help(self) -> str:
        """Description of the field in `--help`."""
        return field_help(self.kind, self.path.rsplit(".", 1)[-1])

    def stops_at(self, start: Simulation, *held: float) -> list[float]:
        """Return the stops of the slider in order, for runs that begin at `start`; `held` are among them."""
        own = attrgetter(self.path)(start)
        moved = {
            "value": self.stops,
            "times": tuple(own * factor for factor in self.stops),
            "plus": tuple(own + step for step in self.stops),
        }[self.scale]
        digits = [float(f"{value:.4g}") for value in moved]
        return sorted({*(value for value in digits if abs(value - own) > 1e-3 * abs(own)), own, *held})

    def parsed(self, text: str) -> float:
        """Return a value from the address. Raises UserError where it is no number; the run's own classes check its
        range."""
        try:
            value = float(text)
        except ValueError:
            value = float("nan")
        check(isfinite(value), f"{self.name} = {text[:40]!r}; allowed: a number")
        check(not self.whole or value == int(value), f"{self.name} = {text[:40]!r}; allowed: a whole number")
        return value


KNOBS = (
    ExplorerKnob("B", Design, "design.batch_size", "Batch size B", "design", tuple(2**i for i in range(12))),
    ExplorerKnob("K", Design, "design.rollouts", "Rollouts K", "design", tuple(2**i for i in range(8))),
    ExplorerKnob(
        "M", Design, "design.support_rollouts", "Support rollouts M", "design", (0, 1, 3, 7, 15, 31, 63)
    ),
    ExplorerKnob("window", Design, "design.replay_window", "Replay window", "design", (0, 2, 4, 8, 16, 32, 64, 128)),
    ExplorerKnob("epochs", Design, "design.epochs", "Epochs", "design", (1, 2, 3, 4, 6, 8)),
    ExplorerKnob("minibatches", Design, "design.minibatches", "Mini-batches", "design", (1, 2, 4, 8, 16)),
    ExplorerKnob("rounds", Design, "design.rounds", "Rounds", "design", (200, 500, 1000, 2000, 4000)),
    ExplorerKnob(
        "rate", Optimizer, "optimizer.learning_rate", "Learning rate", "update",
        (0.1, 0.25, 0.5, 0.7, 1, 1.4, 2, 4, 10), "times",
    ),
    ExplorerKnob("kl", KL, "design.estimator.kl.coef", "KL coefficient", "update", (0, 1e-4, 1e-3, 0.01, 0.04, 0.1, 1)),
    ExplorerKnob(
        "noise", Linear, "environment.nuisance", "Noise", "problem", (0, 0.25, 0.5, 0.75, 1, 1.5, 2, 4), "times"
    ),
    ExplorerKnob(
        "base", Linear, "environment.base_format", "Base pass rate: format", "problem",
        (-4, -3, -2, -1, -0.5, 0, 0.5, 1, 2, 3, 4), "plus",
    ),
    ExplorerKnob(
        "kappa", Linear, "environment.kappa", "Sharpness of the base", "problem",
        (0.25, 0.5, 0.75, 1, 1.25, 1.5, 2), "times"
    ),
    ExplorerKnob(
        "sharpening", Linear, "environment.sharpening", "Sharpening", "problem", (0, 0.25, 0.5, 1, 2, 4, 8, 16)
    ),
)  # fmt: skip
BY_NAME = {knob.name: knob for knob in KNOBS}


BATCH, ROLLOUTS = 32, 8
"""Contexts and rollouts of the design that the explorer opens with."""
EVALUATIONS = 20
"""Number of evaluations of a run after the first, as in the paper."""
LARGE, FINER = 4096, 2
"""Responses and contexts of a round above which the curve has FINER times as many evaluations, so that its first points
come sooner."""
MAX_ROLLOUTS, MAX_UPDATES, MAX_WINDOW = 1 << 18, 64, 1024
"""Largest numbers of rollouts and updates of a round, and largest window: more rollouts and updates would take a minute
a curve, and longer windows gigabytes."""
MAX_ADDRESS = 20_000
"""Largest number of characters of an address."""
PRESETS_BY_NAME: dict[str, Design] = {
    f"{one.title}: {tick}": cell
    for one in EXPERIMENTS.values()
    for cell, tick in zip(one.cells, one.ticks, strict=True)
}
"""Designs of all experiments, by their titles."""


@dataclass(frozen=True)
class Choices:
    """Choices of one curve: its start, its estimator, and the sliders that were moved."""

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
        """Return the choices with a slider at a value."""
        values = dict(self.moved) | {name: value}
        return replace(self, moved=tuple((knob.name, values[knob.name]) for knob in KNOBS if knob.name in values))

    def value(self, name: str) -> float:
        """Return the value of a slider."""
        return dict(self.moved).get(name, own_value(self.origin, name))

    @property
    def origin(self) -> Simulation:
        """Run before any slider is moved: the pair's simulation with the explorer's first design, and the estimator as
        its card runs it."""
        own, card = start_named(self.start), CARDS[self.estimator]
        window = max(card.replay_window, ROLLOUTS) if card.replay_window else 0
        design = Design(BATCH, ROLLOUTS, 0, window, preset(self.estimator), card.sampling, own.design.rounds)
        return replace(own, design=design)


def own_value(run: Simulation, name: str) -> float:
    """Return the value of a slider's field in a run; without a KL penalty its coefficient is 0."""
    path = BY_NAME[name].path
    if path.endswith("kl.coef") and run.design.estimator.kl.kind == "none":
        return 0.0
    return attrgetter(path)(run)


def chosen_run(choices: Choices) -> Simulation:
    """Return the run that choices stand for. Raises UserError where they are not allowed."""
    values: dict[str, Any] = {}
    for name, value in choices.moved:
        knob = BY_NAME[name]
        values[knob.path] = int(value) if knob.whole else float(value)
    origin = choices.origin
    coefficient = values.pop("design.estimator.kl.coef", None)
    if coefficient is not None:  # the estimator's own penalty, else k3 in the loss; no penalty at 0
        own = origin.design.estimator.kl
        kind = "none" if coefficient == 0 else "k3" if own.kind == "none" else own.kind
        values["design.estimator.kl"] = replace(own, kind=kind, coef=coefficient or own.coef)
    rounds = values.get("design.rounds", origin.design.rounds)
    run = _changed(origin, values | {"design.eval_every": _interval(int(rounds), 1)})
    design = run.design
    responses = design.round_rollouts * design.sampling.tries
    updates = design.epochs * design.minibatches
    check(responses <= MAX_ROLLOUTS, f"{responses:,} rollouts a round; allowed here: at most {MAX_ROLLOUTS:,}")
    check(updates <= MAX_UPDATES, f"{updates} updates a round; allowed here: at most {MAX_UPDATES}")
    check(design.replay_window <= MAX_WINDOW, f"window = {design.replay_window}; allowed here: at most {MAX_WINDOW}")
    every = _interval(design.rounds, FINER if responses + 2 * design.batch_size > LARGE else 1)
    return replace(run, design=replace(design, eval_every=every))


def _interval(rounds: int, finer: int) -> int:
    """Return the number of rounds between two evaluations."""
    counts = (EVALUATIONS * finer, EVALUATIONS, *range(2 * EVALUATIONS, 0, -1))
    return next(rounds // count for count in counts if rounds % count == 0)


def _changed(part: Any, values: dict[str, Any]) -> Any:
    """Return a copy with values at paths. Each class is built once, so that it checks its values together."""
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
    return replace(part, **own)


def cell_choices(start: str, cell: Design) -> Choices:
    """Return the choices that stand for a cell, with the pair's own rounds."""
    choices = Choices(start, estimator_name(cell.estimator))
    run = start_named(start)
    for name, field in (("B", "batch_size"), ("K", "rollouts"), ("M", "support_rollouts"), ("window", "replay_window")):
        if own_value(choices.origin, name) != getattr(cell, field):
            choices = choices.moving(name, float(getattr(cell, field)))
    if choices.origin.design.rounds != run.design.rounds:
        choices = choices.moving("rounds", float(run.design.rounds))
    return choices


def to_query(choices: Choices) -> str:
    """Return choices as the part of an address after the question mark."""
    pairs = [("start", choices.start), ("estimator", choices.estimator)]
    return urlencode(pairs + [(name, f"{value:.10g}") for name, value in choices.moved])


def from_query(text: str) -> Choices:
    """Return the choices in an address; other names are ignored. Raises UserError for a value that is not allowed."""
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
    """Return the names and values in an address. Raises UserError where it is too long or cannot be read."""
    check(len(text) <= MAX_ADDRESS, f"the address has {len(text)} characters; allowed: at most {MAX_ADDRESS}")
    try:
        return parse_qsl(text, keep_blank_values=True, max_num_fields=400)
    except ValueError as error:
        raise UserError(f"the address cannot be read: {error}") from None


OWN_NAMES = ("start", "estimator", "axis", "gpu", "over", "dark", "pin", "name")
"""Names in an address other than those of sliders."""
MOST_PINS, LONGEST = 8, 80
"""Largest number of pinned curves, and of letters of a name."""
GPU_NAMES: tuple[GpuName, ...] = get_args(GpuName)


@dataclass(frozen=True)
class Pin:
    """Pinned curve, which stays when sliders move."""

    name: str
    choices: Choices


@dataclass(frozen=True)
class Scene:
    """State of a page: the present choices, the pinned ones, and how they are shown."""

    choices: Choices = Choices()
    pins: tuple[Pin, ...] = ()
    axis: Axis = "rounds"
    """Curves are compared at equal rounds, rollouts or seconds."""
    gpu: GpuName = "H100"
    """Times are estimated for one of these."""
    over: str = "published"
    """Real runs of the same design are laid over, as diamonds."""
    dark: bool = False

    def __post_init__(self):
        check_choice("axis", self.axis, AXES)
        check_choice("gpu", self.gpu, GPU_NAMES)
        check(len(self.pins) <= MOST_PINS, f"{len(self.pins)} pinned curves; allowed: at most {MOST_PINS}")

    def pinning(self, name: str) -> "Scene":
        """Return the scene with the present choices pinned under a name that no other pin has."""
        return replace(self, pins=(*self.pins, Pin(self._free(visible_name(name) or "pinned"), self.choices)))

    def without(self, place: int) -> "Scene":
        """Return the scene without one pin."""
        return replace(self, pins=self.pins[:place] + self.pins[place + 1 :])

    def _free(self, name: str) -> str:
        taken = {pin.name for pin in self.pins}
        names = (name, *(f"{name[: LONGEST - 4]} {number}" for number in range(2, MOST_PINS + 2)))
        return next(one for one in names if one not in taken)


def visible_name(name: str) -> str:
    """Return a name as one line of visible letters, cut to the allowed length."""
    return plain(" ".join(name[: 4 * LONGEST].split()))[:LONGEST]


def to_address(scene: Scene) -> str:
    """Return a scene as the part of an address after the question mark."""
    more: list[tuple[str, str]] = [("axis", scene.axis), ("gpu", scene.gpu), ("over", scene.over)]
    if scene.dark:
        more.append(("dark", "1"))
    more += [part for pin in scene.pins for part in (("pin", to_query(pin.choices)), ("name", pin.name))]
    return f"{to_query(scene.choices)}&{urlencode(more)}"


def from_address(text: str) -> Scene:
    """Return the scene that an address stands for. Raises UserError where it stands for none."""
    pairs = pairs_in(text)
    given = dict(pairs)
    for name in given:
        check_choice("name in the address", name, (*OWN_NAMES, *BY_NAME))
    pinned = [from_query(value) for name, value in pairs if name == "pin"]
    names = [visible_name(value) for name, value in pairs if name == "name"]
    check(len(names) == len(pinned), f"{len(pinned)} pinned curves with {len(names)} names; allowed: a name each")
    check(len(pinned) <= MOST_PINS, f"{len(pinned)} pinned curves; allowed: at most {MOST_PINS}")
    axis, gpu = cast(Axis, given.get("axis", "rounds")), cast(GpuName, given.get("gpu", "H100"))
    over, dark = visible_name(given.get("over", Scene().over)), given.get("dark") == "1"
    scene = Scene(axis=axis, gpu=gpu, over=over, dark=dark)
    for name, choices in zip(names, pinned, strict=True):
        scene = replace(scene, choices=choices).pinning(name)
    scene = replace(scene, choices=from_query(text))
    for choices in (scene.choices, *pinned):
        chosen_run(choices)
    return scene


def restored(text: str) -> tuple[Scene, str]:
    """Return the scene that an address stands for, or a fresh one and the error of the address."""
    try:
        return from_address(text), ""
    except UserError as error:
        return Scene(), str(error)
