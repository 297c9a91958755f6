"""Pilots as JSON files that appear whole or not at all, and the measurements of base models that come with the package.

    results/pilot/<pair>/base.json     what was measured on the base model
    results/pilot/<pair>/pilot.json    the same with the curves of the runs, which lie in the results store like all
                                       runs

A file names the configuration that it is of (`config`) and has a checksum (studies/data/runs/files.py). dev/pilots.py
makes what comes with the package.
"""

import json
import math
from importlib.resources import files
from pathlib import Path
from types import UnionType
from typing import Any, TypeVar, get_args, get_origin, get_type_hints

import numpy as np

from rftlab.shared.plumbing.errors import UserError, check
from rftlab.shared.plumbing.files import reported, write_file
from rftlab.shared.plumbing.folders import below, path_kind
from rftlab.studies.data.runs.files import checksummed, read_checksummed
from rftlab.studies.forecast.pilot.headroom import RateAt
from rftlab.studies.forecast.pilot.pilot import CELLS, QUANTILES, Answers, Base, PilotMeasurements, PilotRun

FORMAT = 2
SHIPPED = files("rftlab.studies") / "assets" / "pilots.json"

Stored = TypeVar("Stored", PilotMeasurements, Base)
"""Class of the content of a file."""


class DamagedPilot(Exception):
    """Error for a file that cannot be trusted; the message says why."""


def pilot_path(root: Path, pair: str, name: str = "pilot") -> Path:
    """Return the path where a results folder keeps `pilot` or `base` of a pair."""
    return below(root, "pilot", pair, f"{name}.json")


def write_measurements(path: Path, content: PilotMeasurements | Base, config: dict) -> None:
    """Write a file; `config` is everything that its content depends on. Raises UserError where it cannot be written."""
    whole = {"config": config, "content": encoded(content)}
    with reported(path):
        write_file(path, checksummed(whole, [FORMAT, type(content).__name__], indent=None))


def read_measurements(path: Path, kind: type[Stored], config: dict | None = None) -> Stored | None:
    """Return the content of a file, of that kind; None where there is no file, or one of another configuration. Raises
    DamagedPilot where the file cannot be trusted."""
    if not path_kind(path):
        return None
    try:
        whole = read_checksummed(path, [FORMAT, kind.__name__])
        if config is not None and whole["config"] != config:
            return None
        content: Stored = checked_content(decoded(kind, whole["content"]))
        pair = content.base.pair if isinstance(content, PilotMeasurements) else content.pair
        check(pair == path.parent.name, f"it is of pair {pair!r}")
        return content
    except (OSError, LookupError, TypeError, ValueError, AttributeError, OverflowError, UserError) as error:
        raise DamagedPilot(f"{path}: {type(error).__name__}: {error}") from None


def read_pilot(root: Path, pair: str) -> PilotMeasurements:
    """Return the pilot of a pair in a results folder. Raises UserError where there is none, or a damaged one."""
    again = f"run `rftlab pilot --pair {pair} --results {root}`"
    try:
        pilot = read_measurements(pilot_path(root, pair), PilotMeasurements)
    except DamagedPilot as damage:
        raise UserError(f"damaged: {damage}; {again} again") from None
    if pilot is None:
        raise UserError(f"{pilot_path(root, pair)} is missing; {again} first")
    return pilot


def shipped_pairs() -> tuple[str, ...]:
    """Return the pairs whose base models were measured for the package."""
    return tuple(shipped())


def shipped_base(pair: str) -> Base:
    """Return the measurements of a pair's base model in the package. Raises UserError where there are none."""
    known = shipped()
    absent = f"pair = {pair!r} has no measurements of its base model in the package"
    check(pair in known, f"{absent}; allowed: {', '.join(known)}")
    return checked_content(decoded(Base, known[pair]))


def shipped() -> dict[str, Any]:
    """Return the measurements of the package by pair, as `encoded` has them."""
    return json.loads(SHIPPED.read_bytes()) if SHIPPED.is_file() else {}


def encoded(value: Any) -> Any:
    """Return a value with named tuples as dictionaries and arrays as lists; nan and inf are as in Python's JSON."""
    if hasattr(value, "_asdict"):
        return {name: encoded(part) for name, part in value._asdict().items()}
    if isinstance(value, dict):
        return {name: encoded(part) for name, part in value.items()}
    if isinstance(value, (tuple, list)):
        return [encoded(part) for part in value]
    return value.tolist() if isinstance(value, (np.ndarray, np.generic)) else value


def decoded(kind: Any, value: Any) -> Any:
    """Return the object that `encoded` took apart, by the types of its fields. A field with a default may be missing:
    older files do not have what was not measured then."""
    if hasattr(kind, "_fields"):
        hints, known = get_type_hints(kind), [name for name in kind._fields if name not in kind._field_defaults]
        known += [name for name in kind._field_defaults if name in value]
        return kind(**{name: decoded(hints[name], value[name]) for name in known})
    if get_origin(kind) is UnionType:
        (some,) = (part for part in get_args(kind) if part is not type(None))
        return None if value is None else decoded(some, value)
    if get_origin(kind) is dict:
        return {name: decoded(get_args(kind)[1], part) for name, part in value.items()}
    if get_origin(kind) is tuple:
        return tuple(decoded(get_args(kind)[0], part) for part in value)
    return np.array(value) if kind is np.ndarray else kind(value)


def checked_content(content: Stored) -> Stored:
    """Return the content of a file after a check. Raises UserError where its numbers make no sense."""
    base: Base = content.base if isinstance(content, PilotMeasurements) else content
    runs: tuple[PilotRun, ...] = content.runs if isinstance(content, PilotMeasurements) else ()
    for split, answers, available in (("train", base.train, base.n_train), ("test", base.test, base.n_test)):
        if answers is not None:
            _check_answers(split, answers, available)
    for ratios in (base.ratios, base.midway and base.midway.ratios):
        for name, one in () if ratios is None else (("between", ratios.between), ("gain", ratios.gain)):
            fits = one.error >= 0 and one.low <= one.value <= one.high
            check(fits, f"ratios.{name} = {one.value:g} from {one.low:g} to {one.high:g}, error {one.error:g}")
    rates: list[tuple[str, RateAt | None]] = []
    headroom = base.headroom
    if headroom is not None:
        names = ("temperatures", "majority", "tries", "silences")
        rates += [(f"headroom.{name}", rate) for name in names for rate in getattr(headroom, name)]
        rates += [("headroom.silent", headroom.silent)]
        rates += [(f"headroom.credit, {one.name}", one.rate) for one in headroom.credit]
        gains = [one.gain.value for one in headroom.credit if one.gain]
        check(all(abs(gain) <= 1 for gain in gains), "headroom.credit: a gain beyond 1; allowed: -1 to 1")
        entropy = headroom.entropy
        check(entropy is None or 0 <= entropy.value < math.inf, "headroom.entropy is none; allowed: 0 or more")
    for name, rate in rates:
        if rate is not None:
            fits = 0 <= rate.value <= 1 and rate.at >= 0 and not rate.error < 0 and rate.questions >= 1
            check(fits, f"{name}: {rate.value:g} at {rate.at:g}, error {rate.error:g}; allowed: shares from 0 to 1")
    for run in runs:
        _check_run(run)
    return content


def _check_answers(split: str, answers: Answers, available: int) -> None:
    n, m = len(answers.strict), answers.samples
    check(1 <= n <= available, f"{split}: {n} questions; allowed: 1 to {available}")
    for name in ("strict", "flexible", "well_formed"):
        counts = getattr(answers, name)
        fits = counts.shape == (n,) and counts.dtype.kind == "i" and counts.min() >= 0 and counts.max() <= m
        check(fits, f"{split}.{name} must be {n} whole numbers from 0 to {m}")
    formed = bool((answers.strict <= answers.well_formed).all())
    check(formed, f"{split}: more right answers in the format than answers in the format")
    count = len(answers.lengths.quantiles)
    check(count == len(QUANTILES), f"{split}: {count} quantiles of lengths; there must be {len(QUANTILES)}")


def _check_run(run: PilotRun) -> None:
    check(run.cell in CELLS, f"design {run.cell} is none of the grid's")
    rounds = run.curve.round
    rises = rounds[0] == 0 and bool((np.diff(rounds) > 0).all()) and rounds[-1] <= run.planned_rounds
    check(rises, f"{run.cell}: rounds must rise from 0 to {run.planned_rounds}")
    check({len(column) for column in run.curve} == {len(rounds)}, f"{run.cell}: columns of unequal lengths")
