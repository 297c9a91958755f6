"""Runs of language models with the same design, to be laid over simulated curves.

Modules that read tables are imported where a table is asked for, so that the page appears soon.
"""

import hashlib
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from rftlab.shared.curve import Curve
from rftlab.shared.design import Design
from rftlab.shared.plumbing.errors import UserError, check, plain
from rftlab.shared.plumbing.folders import below, folders_in, read_file, read_json
from rftlab.studies.analysis.source import RunSource, named_source
from rftlab.studies.data.paper.experiments import label
from rftlab.studies.data.paper.pairs import pair, pairs_at
from rftlab.studies.data.paper.published import published
from rftlab.studies.data.runs.integrity import read_checksummed
from rftlab.studies.explore.chart import ShownCurve

if TYPE_CHECKING:
    import pandas as pd

NONE, PAPER = "none", "published"
REFERENCES = ("tiny-mix97", "tiny-mod97", "tiny-sign97", "smollm2-words", "smollm2-largest")
"""Pairs of the runs that come with rftlab."""
PUBLIC = ("public:pods/gsm8k", "public:pods/math500", "public:pods/amc23")
"""Public runs that come with rftlab and say their B and K, a task each."""
PAPER_ROUNDS = 2000
"""Of the paper's runs."""
MOST = 12
"""Runs of one design that are shown."""


def sources_in(root: Path | None) -> tuple[str, ...]:
    """Return the sources of curves that can be laid over: none, the paper's endpoints, pairs with reference runs or
    runs in a results folder, public runs and the folder's collections."""
    stored, imported = [], []
    if root is not None:
        from rftlab.studies.readers.store import collections

        stored = [folder.name for folder in folders_in(below(root, "llm")) if folder.name in pairs_at("llm")]
        imported = [f"imported:{name}" for name in collections(root)]
    pairs = dict.fromkeys((*REFERENCES, *stored))
    return (NONE, PAPER, *(f"llm:{name}" for name in pairs), *PUBLIC, *imported)


def real_runs(source: str, start: str, design: Design, root: Path | None) -> list[ShownCurve]:
    """Runs of a source with the design; of a pair those of the results folder where it has any, else those that come
    with rftlab. Raises UserError where the source is not there or cannot be trusted."""
    allowed = sources_in(root)
    check(source in allowed, f"runs = {plain(source)[:80]!r}; allowed: {', '.join(allowed)}")
    if source == NONE:
        return []
    if source == PAPER:
        return _published(start, design)
    named = named_source(source)
    if named.free:
        return _logged_runs(named, design, root)
    folder = below(root, "llm", named.place) if root is not None else None
    if folder is not None and folders_in(folder):
        curves = _stored(folder, label(design))
    else:
        from rftlab.studies.data.results.reference import shipped_runs

        frame = shipped_runs()
        rows = frame[(frame["pair"] == named.place) & (frame["cell"] == label(design))]
        curves = [_curve(own) for _, own in rows.groupby("seed")]
    return [ShownCurve(source, curves, measured=True)] if curves else []


def _point(rounds: int, design: Design, train: float, test: float) -> Curve:
    """A curve of one evaluation."""
    values: dict[str, float] = dict.fromkeys(Curve._fields, float("nan"))
    values |= {"seed": 0, "round": rounds, "rollouts": rounds * design.round_rollouts}
    values |= {"train_pass_at_1": train, "test_pass_at_1": test}
    return Curve(**{name: np.array([value]) for name, value in values.items()})


def _published(start: str, design: Design) -> list[ShownCurve]:
    """The paper's endpoint of a pair of its own."""
    if start not in pairs_at("sim"):
        return []
    known = pair(start)
    train, test = (published(known.model, known.dataset, split, design) for split in ("train", "test"))
    if test is None and train is None:
        return []
    ends = (float("nan") if value is None else value for value in (train, test))
    return [ShownCurve(PAPER, [_point(PAPER_ROUNDS, design, *ends)], measured=True)]


def _curve(rows: "pd.DataFrame") -> Curve:
    return Curve(*(rows[name].to_numpy() for name in Curve._fields))


def _stored(folder: Path, cell: str) -> list[Curve]:
    """Finished runs of a results folder. Raises UserError where one was changed."""
    from rftlab.studies.data.runs.files import data_frame

    curves: list[Curve] = []
    for place in folders_in(folder):
        if place.name.rsplit("-", 2)[0] == cell and len(curves) < MOST:
            try:
                facts = read_checksummed(place / "done.json", read_json(place / "config.json"))
                data = read_file(place / "curve.parquet")
                if hashlib.sha256(data).hexdigest() != facts["curve_sha256"]:
                    raise ValueError("curve.parquet does not match its checksum")
                curves.append(_curve(data_frame(data)))
            except FileNotFoundError:
                continue  # it still trains
            except (OSError, ValueError, KeyError, TypeError) as error:
                raise UserError(f"{place.name} cannot be trusted: {plain(str(error))[:200]}") from None
    return curves


def _logged_runs(source: RunSource, design: Design, root: Path | None) -> list[ShownCurve]:
    """Imported or public runs with the same B and K, whatever else they did, each by itself: their evaluations need
    not be at the same rounds. Their test Pass@1 is known, and nothing else."""
    from rftlab.studies.analysis.imported.groups import group_runs

    unknown, shown = _point(0, design, float("nan"), float("nan"))._asdict(), []
    for group in group_runs(source.runs(root or Path()), ("test", "pass_at_1"), source.task):
        if (group.design.prompts, group.design.rollouts) == (design.batch_size, design.rollouts):
            for run, rows in group.curves.groupby("run", observed=True):
                rounds = rows["round"].to_numpy()
                values = {name: np.repeat(value, len(rounds)) for name, value in unknown.items()}
                known = {"round": rounds, "rollouts": rounds * design.round_rollouts}
                known["test_pass_at_1"] = rows["value"].to_numpy()
                name = f"{source.name} {plain(group.label)} {plain(str(run))}"
                shown.append(ShownCurve(name, [Curve(**values | known)], measured=True))
    return shown[:MOST]
