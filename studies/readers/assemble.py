"""From what a format read to a run in our terms: names, rounds, rates as fractions, and what the log itself tells
of the design."""

import hashlib
import json
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np

from rftlab.shared.plumbing.errors import check, plain
from rftlab.studies.readers.designs import design_of, tool_of_config
from rftlab.studies.readers.designs.records import from_records
from rftlab.studies.readers.names import LONGEST_NAME, RATES, Name, named, of_test
from rftlab.studies.readers.rounds import Counting, tool_of
from rftlab.studies.readers.run import GroupOutcomes, ImportedRun, KnownDesign, Piece, RawRun, merged
from rftlab.studies.readers.steps import Points, cleaned

_COUNTS = ("correct", "num_correct", "n_correct", "solved", "successes")
"""Last parts of names that may count right answers."""
_TOTALS = ("total", "count", "n", "num_questions", "n_questions", "num_examples", "num_samples", "n_test", "attempts")
"""And of those that say of how many."""
_APART = (
    *("run_name", "exp_name", "experiment_name", "project", "project_name", "entity", "run_id"),
    *("output_dir", "logging_dir", "log_dir", "log_path", "save_dir", "save_path", "default_local_dir", "ckpt_path"),
    *("rollout_data_dir", "validation_data_dir", "resume_from_path", "wandb_name", "wandb_run_name", "wandb_run_id"),
    *("wandb_project", "wandb_group", "hub_model_id", "save", "load"),
)
"""Settings that say how a run is called and where it writes; they and seeds are no part of what repeats share."""
_NAMES = ("name", "id", "group")
"""And so do these at the top of a configuration or below one of `_OF_RUNS`. Elsewhere they name a model, a data set, an
environment, an optimiser, which repeats share."""
_OF_RUNS = (
    *("", "config", "cfg", "args", "params", "hparams", "run", "experiment", "exp", "trainer", "project", "job"),
    *("wandb", "trackio", "swanlab", "mlflow", "tensorboard", "comet", "neptune", "tracker", "tracking", "monitor"),
    *("log", "logger", "logging"),
)
_BOUNDS = ("critic/score/min", "critic/score/max")


class _Part(NamedTuple):
    """One metric of a run with its name in our terms."""

    source: str
    name: Name
    points: Points


def assemble(
    raw: RawRun, sources: tuple[tuple[str, str], ...], given: KnownDesign, processes: int | None = None
) -> ImportedRun:
    """A run in our terms. given: what the user says of the design, which outranks all else; processes: the world
    size that TRL's batch depends on.

    Raises UserError where the steps cannot be made sense of.
    """
    if raw.pieces:
        design = merged(given, raw.design)
        own = plain(raw.name), raw.format, raw.tool, sources
        return ImportedRun(*own, design, raw.pieces, tuple(raw.notes), repeats=_repeats(raw, design))
    points, repairs = cleaned(
        raw, {source for source in raw.series if (name := named(source)) and name.split == "test"}
    )
    check(bool(points), "it holds no values; allowed: a log with steps and numbers")
    raw.tool = raw.tool or tool_of(points)
    design, more = design_of(raw.config, raw.tool, processes) if raw.config else (KnownDesign(), [])
    design = merged(given, merged(merged(design, raw.design), from_records(points, raw.tool)))
    notes = raw.notes + repairs + more
    parts = _named_parts(points, raw.aliases, notes)
    kinds = {split: [part.points for part in parts if part.name.split == split] for split in ("train", "test")}
    counting = Counting(raw, points, kinds["train"], kinds["test"], design.updates_per_round)
    notes += counting.notes
    pieces = tuple(sorted((_piece(part, counting, raw.unprinted) for part in parts), key=_place))
    outcomes = tuple(_by_rounds(one, counting) for one in raw.outcomes)
    texts = tuple(plain(note) for note in notes)
    said = plain(raw.name), raw.format, raw.tool, sources, design, pieces, texts, outcomes
    return ImportedRun(*said, _repeats(raw, design))


def _repeats(raw: RawRun, design: KnownDesign) -> str:
    """The mark of runs that repeat each other: a checksum of all that their own configurations say, or their columns
    where B and K are known, but for seeds and names; "" where neither is there. Names of runs say nothing."""
    sized = design.prompts is not None and design.rollouts is not None
    known = raw.config if raw.config and raw.whole and (sized or tool_of_config(raw.config)) else None
    known = raw.stated if known is None and sized else known
    if raw.repeats or known is None:
        return raw.repeats
    text = json.dumps([raw.tool, _without_seed(known)], sort_keys=True, default=repr)
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def _without_seed(settings: Any, above: str = "") -> Any:
    """Settings without those of `_is_apart`, at every depth. above: the name of the part that holds them."""
    if not isinstance(settings, dict):
        return settings
    kept = {}
    for name, value in settings.items():
        parent, _, last = str(name).replace("/", ".").lower().rpartition(".")
        if not _is_apart(last, parent.rpartition(".")[2] or above):
            kept[str(name)] = _without_seed(value, last)
    return kept


def _is_apart(name: str, above: str) -> bool:
    """Whether a setting is a seed or says how a run is called. above: the name of the part that holds it."""
    return "seed" in name or name in _APART or (name in _NAMES and above in _OF_RUNS)


def _by_rounds(found: GroupOutcomes, counting: Counting) -> GroupOutcomes:
    """The same with rounds in the place of steps."""
    rounds = (counting.test if found.split == "test" else counting.train)(np.asarray(found.rounds))
    return found._replace(rounds=tuple(map(int, rounds)))


def _place(piece: Piece) -> tuple:
    """Tests first."""
    return piece.split != "test", *piece[:4]


def _named_parts(points: dict[str, Points], aliases: dict[str, str], notes: list[str]) -> list[_Part]:
    """Every metric with its name: the user's, ours where the table has one and no better source of it is there,
    else its own."""
    found = {
        source: _scored(name, points, notes) for source in points if source not in aliases and (name := named(source))
    }
    found |= {source: _aliased(aliases[source]) for source in points if source in aliases}
    taken: dict[tuple[str, str, str], str] = {}
    for source in sorted(found, key=lambda source: found[source].rank):
        taken.setdefault(found[source][:3], source)
    ours, short = set(taken.values()), _short_tasks({name.task for name in found.values()})
    parts, counted = [], any(source.rpartition("/")[2].lower() in _TOTALS for source in points)
    for source, part in points.items():
        name = found[source]._replace(task=short[found[source].task]) if source in ours else _own(source, part)
        if RATES.fullmatch(name.metric) and name.scale == 1.0:
            name, part = _as_fraction(source, name, part, notes, counted)
        parts.append(_Part(source, name, part))
    return parts


def _aliased(name: str) -> Name:
    """What the user named: [test.|train.]metric; Pass@k is of the test split unless they say so, all else of the
    train split."""
    split, point, metric = name.partition(".")
    if not point or split not in ("test", "train"):
        split, metric = "test" if name.startswith("pass_at_") else "train", name
    return Name(split, {"reward": "reward_mean"}.get(metric, metric), "", -1)


def _own(source: str, part: Points) -> Name:
    """A metric that has no name of ours."""
    return Name("", plain(source)[:LONGEST_NAME], "", 0)


def _short_tasks(tasks: set[str]) -> dict[str, str]:
    """openai/gsm8k is gsm8k, unless two sets would share a name."""
    last = {task: task.rsplit("/", 1)[-1] for task in tasks}
    unique = len(set(last.values())) == len(last)
    return {task: plain(last[task] if unique else task)[:LONGEST_NAME] for task in tasks}


def _scored(name: Name, points: dict[str, Points], notes: list[str]) -> Name:
    """The metric "score" is Pass@1 where it is 0 or 1: where verl logs its smallest and largest values, those
    tell."""
    if name.metric != "score":
        return name
    bounds = [points[bound].values for bound in _BOUNDS if bound in points]
    strict = len(bounds) == 2 and all(np.isin(values, (0.0, 1.0)).all() for values in bounds)
    if bounds:
        text = (
            "critic/score is 0 or 1 at both ends in every step: its mean is taken as Pass@1"
            if strict
            else "critic/score is not 0 or 1: a mean reward"
        )
    else:
        strict = name.split == "test" and all(
            part.values.min() >= 0 and part.values.max() <= 1 for part in _tests(points)
        )
        text = (
            "test scores lie between 0 and 1 and are taken as Pass@1"
            if strict
            else "scores are taken as mean rewards: nothing says that they are 0 or 1"
        )
    if text not in notes:
        notes.append(text)
    return name._replace(metric="pass_at_1" if strict else "reward_mean")


def _tests(points: dict[str, Points]) -> Iterator[Points]:
    for source, part in points.items():
        name = named(source)
        if name and name.metric == "score" and name.split == "test":
            yield part


def _as_fraction(source: str, name: Name, part: Points, notes: list[str], counted: bool) -> tuple[Name, Points]:
    """A rate that is written in per cent becomes a fraction; one that may be either, or a count, keeps its own name.
    counted: whether the log says of how many something is."""
    values, leaf = part.values, source.rpartition("/")[2].lower()
    inside = values.min() >= 0 and values.max() <= 1
    count = bool(np.all(values == np.rint(values))) and (
        (counted and (leaf in _COUNTS or not inside)) or (leaf in _COUNTS and not inside)
    )
    if count:
        notes.append(f"{source} may count answers: kept under its own name")
        return _own(source, part), part
    if inside:
        return name, part
    if values.min() < 0 or values.max() > 100:
        notes.append(f"{source} has values outside 0 .. 100, so it is no rate: kept under its own name")
        return _own(source, part), part
    if np.any((values > 0) & (values <= 1)):
        notes.append(
            f"{source} may be per cent or fractions ({values.max():g} and {values[values > 0].min():g}): kept "
            "under its own name"
        )
        return _own(source, part), part
    notes.append(f"{source} is in per cent: divided by 100")
    return name, part._replace(values=np.round(values / 100, 12))


def _piece(part: _Part, counting: Counting, unprinted: set[tuple[str, int]]) -> Piece:
    """A metric with its rounds; several updates of a round are averaged."""
    steps, values, n = part.points
    test = part.name.split == "test" or (part.name.split == "" and of_test(part.source))
    rounds = (counting.test if test else counting.train)(steps)
    values = part.name.offset + part.name.scale * values if part.name.scale != 1.0 else values
    if not np.all(rounds[1:] > rounds[:-1]):
        rounds, first, counts = np.unique(rounds, return_index=True, return_counts=True)
        values = np.add.reduceat(values, first) / counts
        n = np.where(counts > 1, counts, (np.ones(len(steps)) if n is None else n)[first])
        steps = steps[first + counts - 1]
    hidden = [step for source, step in unprinted if source == part.source]
    steps = np.where(np.isin(steps, hidden), -1, steps) if hidden else steps
    name = part.name
    return Piece(name.split, name.task, name.metric, plain(part.source)[:LONGEST_NAME], rounds, values, n, steps)
