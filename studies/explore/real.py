"""Runs of language models with the same design, to be laid over simulated curves.

What reads tables is imported where it is asked for: the page is to be there soon.
"""

import hashlib
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from rftlab.shared.curve import Curve
from rftlab.shared.design import Design
from rftlab.shared.plumbing.errors import UserError, check, plain
from rftlab.shared.plumbing.folders import below, folders_in, read_file, read_json
from rftlab.studies.data.paper.experiments import label
from rftlab.studies.data.paper.pairs import pair, pairs_at
from rftlab.studies.data.paper.published import published
from rftlab.studies.data.runs.seal import read_sealed
from rftlab.studies.explore.chart import ShownCurve

if TYPE_CHECKING:
    import pandas as pd

    from rftlab.studies.analysis.imported.groups import Group

NONE, PAPER, SHIPPED = "none", "published", "reference"
REFERENCES = ("tiny-mix97", "tiny-mod97", "tiny-sign97", "smollm2-words", "smollm2-largest")
"""Pairs of the runs that come with rftlab."""
PUBLIC = ("public:pods/gsm8k", "public:pods/math500", "public:pods/amc23")
"""Public runs that come with rftlab and say their B and K, a task each."""
PAPER_ROUNDS = 2000
"""Of the paper's runs."""
MOST = 12
"""Runs of one design that are shown."""


def sources_in(root: Path | None) -> tuple[str, ...]:
    """What can be laid over: the paper's endpoints, reference and public runs, pairs and collections of a results
    folder."""
    references = [f"{SHIPPED}:{name}" for name in REFERENCES]
    if root is None:
        return (NONE, PAPER, *references, *PUBLIC)
    from rftlab.studies.readers.store import collections

    runs = [folder.name for folder in folders_in(below(root, "llm")) if folder.name in pairs_at("llm")]
    return (
        NONE,
        PAPER,
        *references,
        *PUBLIC,
        *(f"runs:{name}" for name in runs),
        *(f"imported:{name}" for name in collections(root)),
    )


def real_runs(source: str, start: str, design: Design, root: Path | None) -> list[ShownCurve]:
    """Runs of a source with the design. Raises UserError where the source is not there or cannot be trusted."""
    allowed = sources_in(root)
    check(source in allowed, f"runs = {plain(source)[:80]!r}; allowed: {', '.join(allowed)}")
    if source == PAPER:
        return _published(start, design)
    kind, _, name = source.partition(":")
    if kind == SHIPPED:
        return _of_frame(source, _shipped(), name, label(design))
    if root is not None and kind == "runs":
        return _stored(source, below(root, "llm", name), label(design))
    return _imported(source, design, root) if source != NONE else []


@cache
def _shipped() -> "pd.DataFrame":
    from rftlab.studies.data.results.reference import shipped

    return shipped()


def _point(rounds: int, design: Design, train: float, test: float) -> Curve:
    """A curve of one evaluation."""
    spent = rounds * design.round_rollouts
    values: dict[str, float] = dict.fromkeys(Curve._fields, float("nan"))
    values |= {"seed": 0, "round": rounds, "rollouts": spent, "train_pass_at_1": train, "test_pass_at_1": test}
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


def _of_frame(source: str, frame: "pd.DataFrame", name: str, cell: str) -> list[ShownCurve]:
    """Seeds of a cell in a table of curves."""
    own = frame[(frame["pair"] == name) & (frame["cell"] == cell)]
    curves = [_curve(rows) for _, rows in own.groupby("seed")]
    return [ShownCurve(source, curves, measured=True)] if curves else []


def _curve(rows: "pd.DataFrame") -> Curve:
    return Curve(*(rows[name].to_numpy() for name in Curve._fields))


def _stored(source: str, folder: Path, cell: str) -> list[ShownCurve]:
    """Finished runs of a results folder, whose seals hold."""
    found = [_read(place) for place in folders_in(folder) if place.name.rsplit("-", 2)[0] == cell]
    curves = [curve for curve in found if curve is not None][:MOST]
    return [ShownCurve(source, curves, measured=True)] if curves else []


def _read(place: Path) -> Curve | None:
    """The curve of a run; None where it is not finished. Raises UserError where it was changed."""
    from rftlab.studies.data.runs.parquet import data_frame

    try:
        facts = read_sealed(place / "done.json", read_json(place / "config.json"))
        data = read_file(place / "curve.parquet")
        if hashlib.sha256(data).hexdigest() != facts["curve_sha256"]:
            raise ValueError("curve.parquet does not match its checksum")
        return _curve(data_frame(data))
    except FileNotFoundError:
        return None
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise UserError(f"{place.name} cannot be trusted: {plain(str(error))[:200]}") from None


def _imported(source: str, design: Design, root: Path | None) -> list[ShownCurve]:
    """Imported or public runs with the same B and K, whatever else they did."""
    from rftlab.studies.analysis.imported.groups import groups_of
    from rftlab.studies.analysis.source import free_source

    meant = free_source(source)
    groups = groups_of(meant.runs(root or Path()), ("test", "pass_at_1"), meant.task)
    alike = [group for group in groups if (group.design.prompts, group.design.rollouts) == _spent(design)]
    return [shown for group in alike for shown in _of_group(source, group, design)][:MOST]


def _spent(design: Design) -> tuple[int, int]:
    return design.batch_size, design.rollouts


def _of_group(source: str, group: "Group", design: Design) -> list[ShownCurve]:
    """Each run by itself: their evaluations need not be at the same rounds."""
    return [
        ShownCurve(f"{source} {plain(group.label)} {plain(str(run))}", [_logged(rows, design)], measured=True)
        for run, rows in group.curves.groupby("run", observed=True)
    ]


def _logged(rows: "pd.DataFrame", design: Design) -> Curve:
    """The curve of an imported run, of which the test Pass@1 is known."""
    rounds, one = rows["round"].to_numpy(), _point(0, design, float("nan"), float("nan"))
    whole = {name: np.repeat(values, len(rounds)) for name, values in one._asdict().items()}
    spent = rounds * design.round_rollouts
    return Curve(**whole | {"round": rounds, "rollouts": spent, "test_pass_at_1": rows["value"].to_numpy()})


def with_seconds(shown: list[ShownCurve], seconds: float | None) -> list[ShownCurve]:
    """The same with the estimated seconds of a round, of which the runs themselves say nothing that compares."""
    return [one._replace(seconds=seconds) for one in shown]
