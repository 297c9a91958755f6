"""All that a page shows, as data: what an address restores."""

from dataclasses import dataclass, replace
from typing import get_args
from urllib.parse import urlencode

from rftlab.llm.budget.devices import GpuName
from rftlab.shared.plumbing.errors import UserError, check, check_choice, plain
from rftlab.studies.explore.chart import AXES, Axis
from rftlab.studies.explore.choices import Choices, chosen_run, from_query, pairs_in, to_query

MOST_PINS, LONGEST = 8, 80
"""Curves that may be pinned, and letters of a name."""
GPU_NAMES: tuple[GpuName, ...] = get_args(GpuName)


@dataclass(frozen=True)
class Pin:
    """A curve that stays."""

    name: str
    choices: Choices


@dataclass(frozen=True)
class Scene:
    """The choices of now, the pinned ones, and how they are shown."""

    choices: Choices = Choices()  # noqa: RUF009, it is frozen
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
        """With the present choices pinned under a name that no other pin has."""
        return replace(self, pins=(*self.pins, Pin(self._free(visible_name(name) or "pinned"), self.choices)))

    def without(self, place: int) -> "Scene":
        """With one pin less."""
        return replace(self, pins=self.pins[:place] + self.pins[place + 1 :])

    def _free(self, name: str) -> str:
        taken = {pin.name for pin in self.pins}
        names = (name, *(f"{name[: LONGEST - 4]} {number}" for number in range(2, MOST_PINS + 2)))
        return next(one for one in names if one not in taken)


def visible_name(name: str) -> str:
    """A name as one line of visible letters, not too long."""
    return plain(" ".join(name[: 4 * LONGEST].split()))[:LONGEST]


def to_address(scene: Scene) -> str:
    """The part of an address behind the question mark."""
    more: list[tuple[str, str]] = [("axis", scene.axis), ("gpu", scene.gpu), ("over", scene.over)]
    if scene.dark:
        more.append(("dark", "1"))
    more += [part for pin in scene.pins for part in (("pin", to_query(pin.choices)), ("name", pin.name))]
    return f"{to_query(scene.choices)}&{urlencode(more)}"


def from_address(text: str) -> Scene:
    """Return the scene that an address restores. Raises UserError for an address without a meaning."""
    pairs = pairs_in(text)
    given = dict(pairs)
    pinned = [from_query(value) for name, value in pairs if name == "pin"]
    names = [visible_name(value) for name, value in pairs if name == "name"]
    check(len(names) == len(pinned), f"{len(pinned)} pinned curves with {len(names)} names; allowed: a name each")
    check(len(pinned) <= MOST_PINS, f"{len(pinned)} pinned curves; allowed: at most {MOST_PINS}")
    axis, gpu = given.get("axis", "rounds"), given.get("gpu", "H100")
    check_choice("axis", axis, AXES)
    check_choice("gpu", gpu, GPU_NAMES)
    shown = Scene(
        from_query(text),
        axis=next(one for one in AXES if one == axis),
        gpu=next(one for one in GPU_NAMES if one == gpu),
        over=visible_name(given.get("over", Scene().over)),
        dark=given.get("dark") == "1",
    )
    scene = shown
    for name, choices in zip(names, pinned, strict=True):
        scene = replace(replace(scene, choices=choices).pinning(name), choices=shown.choices)
    for choices in (scene.choices, *pinned):
        chosen_run(choices)
    return scene


def restored(text: str) -> tuple[Scene, str]:
    """Return the scene that an address restores, or a fresh one and the error of the address."""
    try:
        return from_address(text), ""
    except UserError as error:
        return Scene(), str(error)
