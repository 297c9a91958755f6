"""Turn what a format read into an imported run: rftlab's metric names, rounds, rates as fractions, and the design that
the log itself states.

Runs count as repeats of each other where their configurations or columns say so, or where the user does.
"""

import hashlib
import json
import re
from dataclasses import replace
from fnmatch import fnmatchcase
from typing import Any

import numpy as np

from rftlab.shared.plumbing.errors import check, few, plain
from rftlab.studies.readers.designs import detect_trainer, read_design
from rftlab.studies.readers.designs.values import as_count
from rftlab.studies.readers.names import LONGEST_NAME, RATES, SCORES, Name, is_test_metric, translate_metric
from rftlab.studies.readers.run import FACTS, ImportedRun, KnownDesign, MetricSeries, RawRun, arrange, merge_designs
from rftlab.studies.readers.steps import FEWEST_STEPS, Counting, Points, clean_series, trainer_by_metrics

_APART = (
    *("run_name", "exp_name", "experiment_name", "project", "project_name", "entity", "run_id"),
    *("output_dir", "logging_dir", "log_dir", "log_path", "save_dir", "save_path", "default_local_dir", "ckpt_path"),
    *("rollout_data_dir", "validation_data_dir", "resume_from_path", "wandb_name", "wandb_run_name", "wandb_run_id"),
    *("wandb_project", "wandb_group", "hub_model_id", "save", "load"),
)
"""Settings that hold a run's name or a place where it writes. Repeats may differ in these and in seeds."""
_NAMES = ("name", "id", "group")
"""Settings that name a run at the top of a configuration or below one of `_OF_RUNS`. Elsewhere they name a model, a
data set, an environment or an optimiser, in which repeats agree."""
_OF_RUNS = (
    *("", "config", "cfg", "args", "params", "hparams", "run", "experiment", "exp", "trainer", "project", "job"),
    *("wandb", "trackio", "swanlab", "mlflow", "tensorboard", "comet", "neptune", "tracker", "tracking", "monitor"),
    *("log", "logger", "logging"),
)


def repeats_mark(raw: RawRun, design: KnownDesign) -> str:
    """Return the mark that runs share where they repeat each other; "" where nothing tells. The mark is the source's
    own, else a checksum of the run's whole configuration, or of its columns where B and K are known, without seeds and
    names. The name of a run itself does not count."""
    sized = design.prompts is not None and design.rollouts is not None
    known = raw.config if raw.config and raw.whole and (sized or detect_trainer(raw.config)) else None
    known = raw.stated if known is None and sized else known
    if raw.repeats or known is None:
        return raw.repeats
    text = json.dumps([raw.tool, _without_seed(known)], sort_keys=True, default=repr)
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def _without_seed(settings: Any, above: str = "") -> Any:
    """Return settings without seeds and names at every depth (`_is_apart`). above: name of the part that holds them."""
    if not isinstance(settings, dict):
        return settings
    kept = {}
    for name, value in settings.items():
        parent, _, last = str(name).replace("/", ".").lower().rpartition(".")
        if not _is_apart(last, parent.rpartition(".")[2] or above):
            kept[str(name)] = _without_seed(value, last)
    return kept


def _is_apart(name: str, above: str) -> bool:
    """Whether a setting is a seed, or a run's name or place. above: name of the part that holds it."""
    return "seed" in name or name in _APART or (name in _NAMES and above in _OF_RUNS)


def mark_repeats(runs: list[ImportedRun], patterns: tuple[str, ...]) -> list[ImportedRun]:
    """Return the runs, with those marked as repeats of each other whose names fit one pattern. Raises UserError where a
    pattern fits fewer than two runs, a run that an earlier pattern fits, or runs whose known designs differ."""
    marks: dict[str, str] = {}
    for pattern in patterns:
        own = [run for run in runs if fnmatchcase(run.name, pattern)]
        names = ", ".join(run.name for run in runs[:8])
        check(len(own) > 1, f"repeats = {pattern!r} meets {len(own)} runs; allowed: two or more of {names}")
        twice = next((run.name for run in own if run.name in marks), "")
        check(not twice, f"repeats = {pattern!r} meets {twice}, as one before it; allowed: each run once")
        for fact in FACTS:
            values = sorted({str(value) for run in own if (value := getattr(run.design, fact)) is not None})
            check(
                len(values) < 2,
                f"repeats = {pattern!r} meets runs of which {fact} differs ({', '.join(values[:3])}): "
                "no repeats; allowed: runs of one design",
            )
        marks |= dict.fromkeys((run.name for run in own), pattern)
    return [replace(run, repeats=marks.get(run.name, run.repeats)) for run in runs]


def describe_unmarked(runs: list[ImportedRun]) -> str:
    """Return the note on runs that may or may not repeat each other; "" where there are no two."""
    names = [run.name for run in runs if not run.repeats]
    if len(names) < 2:
        return ""
    return (
        f"{len(names)} runs ({', '.join(names[:3])}{', ..' * (len(names) > 3)}) stay apart: without their "
        "configurations nothing says which repeat each other; --repeats 'NAME*' does"
    )


_COUNTS = ("correct", "num_correct", "n_correct", "solved", "successes")
"""Last parts of metric names that may count right answers."""
_TOTALS = ("total", "count", "n", "num_questions", "n_questions", "num_examples", "num_samples", "n_test", "attempts")
"""Last parts of metric names that may count all answers."""
_OF_RIGHT = re.compile(r"rewards/[^/]*(?:accuracy|correct|format)[^/]*$", re.IGNORECASE)
_OF_SCRIPT = re.compile(r"(?:xmlcount|int)_reward_func")
"""Names of rewards that occur only in the script that gives 2 for a right answer and 0.5 for a format."""
TOO_WIDE = 1.7
"""Ratio of a reward's variance to m (1 - m), m its mean, above which it is no share. The ratio is at most n / (n - 1)
for n responses that get 0 to 1, and 2 or more where some get 2."""
_BOUNDS = ("critic/score/min", "critic/score/max")
RARELY = 5
"""Pass@k counts as an evaluation where at least this many steps have a reward for each one that has pass@k."""
_CACHED = re.compile(r"models--([\w.]{1,100}(?:-[\w.]{1,100}){0,9})--([\w.-]{1,200})/snapshots/")
"""Path of a model in the cache of Hugging Face's hub library."""


_COLUMNS = {
    "prompts": ("num_questions", "num_prompts", "prompts_per_batch", "prompts_per_round", "groups_per_batch"),
    "rollouts": ("group_size", "num_generations", "rollouts_per_prompt", "responses_per_prompt"),
    "updates_per_round": ("optimizer_updates_per_rollout_batch", "updates_per_round", "updates_per_batch"),
}
_LOGGED = {"learning_rate": "learning_rate", "num_iterations": "updates_per_round"}
"""Arguments of TRL, and the design facts of the log that make up for them where they are not stated."""
_OF_UPDATES = ("reward_mean", "grad_norm", "learning_rate", "entropy", "kl", "kl_ref", "clip_fraction")
"""Metrics that training logs for a round and its updates."""


_Part = tuple[str, Name, Points]
"""One metric of a run: the source's name, its name in rftlab's terms, its values."""


def assemble(
    raw: RawRun, sources: tuple[tuple[str, str], ...], given: KnownDesign, processes: int | None = None
) -> ImportedRun:
    """Return an imported run. sources: name and SHA-256 of each file. given: design facts from the user, which outrank
    all others. processes: the world size, on which TRL's batch depends.

    Raises UserError where a log has no values, or steps that cannot be turned into rounds.
    """
    if raw.pieces:
        design = merge_designs(given, raw.design)
        own = plain(raw.name), raw.format, raw.tool, sources
        return ImportedRun(*own, design, raw.pieces, tuple(raw.notes), repeats=repeats_mark(raw, design))
    named = {source: name for source in raw.series if (name := translate_metric(source))}
    tests = {source for source, name in named.items() if name.split == "test"}
    rewards = {source for source, name in named.items() if name.metric in ("reward_mean", "score")}
    points, repairs = clean_series(raw, tests, rewards)
    check(bool(points), "it holds no values; allowed: a log with steps and numbers")
    raw.tool = raw.tool or trainer_by_metrics(points)
    design, more = read_design(raw.config, raw.tool, processes) if raw.config else (KnownDesign(), [])
    logged = _from_records(points, raw.tool)
    design = merge_designs(given, merge_designs(merge_designs(design, raw.design), logged))
    if design.model and (cached := _CACHED.search(design.model)):
        design = replace(design, model="/".join(cached.groups()))
    told = tuple(f"{name} is not stated" for name, fact in _LOGGED.items() if getattr(logged, fact) is not None)
    notes = raw.notes + repairs + [note for note in more if not note.startswith(told)]
    parts = _named_parts(points, raw.aliases, notes)
    parts = parts if raw.tool else _tested_rarely(_tested_first(raw, parts, notes), raw.aliases, notes)
    kinds = {split: [part for _, name, part in parts if name.split == split] for split in ("train", "test")}
    counting = Counting(raw, points, kinds["train"], kinds["test"], design.updates_per_round)
    notes += counting.notes
    pieces = arrange(_piece(*part, counting, raw.unprinted) for part in parts)
    outcomes = tuple(
        one._replace(rounds=tuple(map(int, counting.rounds(np.asarray(one.rounds), one.split == "test"))))
        for one in raw.outcomes
    )
    texts = tuple(plain(note) for note in notes)
    said = plain(raw.name), raw.format, raw.tool, sources, design, pieces, texts, outcomes
    return ImportedRun(*said, repeats_mark(raw, design))


def _named_parts(points: dict[str, Points], aliases: dict[str, str], notes: list[str]) -> list[_Part]:
    """Return every metric with a name: the one that the user gave, else rftlab's, where the table has it and no better
    source of it exists, else the source's own."""
    names = {
        source: _scored(name, points, notes)
        for source in points
        if source not in aliases and (name := translate_metric(source)) and not _is_worth_more(source, points, notes)
    }
    names |= {source: _aliased(aliases[source]) for source in points if source in aliases}
    taken: dict[tuple[str, str, str], str] = {}
    for source in sorted(names, key=lambda source: names[source].rank):
        taken.setdefault(names[source][:3], source)
    notes += [
        f"{source} keeps its own name: {taken[name[:3]]} is taken as {name.split} {name.metric}"
        for source, name in names.items()
        if source != taken[name[:3]] and name.rank == names[taken[name[:3]]].rank
    ][:3]
    ours, short = set(taken.values()), _short_tasks({name.task for name in names.values()})
    parts, counted = [], any(source.rpartition("/")[2].lower() in _TOTALS for source in points)
    for source, part in points.items():
        name = names[source]._replace(task=short[names[source].task]) if source in ours else _own(source)
        if RATES.fullmatch(name.metric) and name.scale == 1.0:
            name, part = _as_fraction(source, name, part, notes, counted)
        parts.append((source, name, part))
    return parts


def _tested_first(raw: RawRun, parts: list[_Part], notes: list[str]) -> list[_Part]:
    """Return the parts of a log, with scores at step 0 taken as evaluations where the log tests the untrained model
    there. Such a log has no loss and no reward at step 0, and its training begins at step 1."""
    updates = [
        part
        for source, name, part in parts
        if name.split != "test" and (name.metric in _OF_UPDATES or source.lower().endswith("loss"))
        if not is_test_metric(source)
    ]
    taken = {name[:3] for _, name, _ in parts if name.split == "test"}
    tests = {
        source: tested
        for source, name, part in parts
        if name.split == "train"
        and (name.metric in SCORES or name.metric.startswith("pass_at_"))
        and source not in raw.aliases
        and not source.lower().startswith(("train", "rollout"))
        and part.steps[0] == 0
        and (tested := name._replace(split="test"))[:3] not in taken
    }
    if not tests or not updates or min(part.steps[0] for part in updates) < 1:
        return parts
    raw.first_step = 1
    notes.append(f"step 0 has no loss and no reward, so it is before training: evaluations are {', '.join(tests)}")
    return [(source, tests.get(source, name), part) for source, name, part in parts]


def _tested_rarely(parts: list[_Part], aliases: dict[str, str], notes: list[str]) -> list[_Part]:
    """Return the parts of a log, with pass@k taken as evaluations where few of the steps with a reward have them."""
    rewarded = max((len(part.steps) for _, name, part in parts if name.metric == "reward_mean"), default=0)
    tests = {
        source: name._replace(split="test")
        for source, name, part in parts
        if name.split == "train" and name.metric.startswith("pass_at_") and source not in aliases
        if RARELY * len(part.steps) <= rewarded and not source.lower().startswith(("train", "rollout"))
    }
    if len(tests) < 2 or any(name.split == "test" for _, name, _ in parts):
        return parts
    notes.append(f"{few(sorted(tests), 4)} stand at few steps that have a reward: taken as evaluations")
    return [(source, tests.get(source, name), part) for source, name, part in parts]


def _is_worth_more(source: str, points: dict[str, Points], notes: list[str]) -> bool:
    """Whether a reward for right answers or formats is something else than their share, which is noted. A reward is no
    share where it exceeds 1, varies by more than a share of its mean can, or is below 1 where all responses get the
    most. A reward of the script that gives 2 and 0.5 is none either; the script is known by its other rewards."""
    reward = source.removesuffix("/mean")
    if not _OF_RIGHT.search(reward):
        return False
    mean, spread = points[source], points.get(f"{reward}/std")
    why = "it exceeds 1, and no reward is in per cent" if mean.values.max() > 1 else ""
    if not why and spread is not None:
        _, own, theirs = np.intersect1d(mean.steps, spread.steps, return_indices=True)
        share, width = mean.values[own], spread.values[theirs] ** 2
        wide = (width > TOO_WIDE * share * (1 - share))[(share > 0) & (width > 0)]
        why = "its values vary by more than shares can" if len(wide) and wide.mean() > 0.5 else ""
        most = share.max(initial=0.0)
        if most < 1 and np.sum((share == most) & (width == 0) & (share > 0)) >= FEWEST_STEPS:
            why = why or f"a response gets {most:g} at most, as all of some steps did"
    half = "format" in reward and mean.values.max() <= 0.5
    others = [name for name in points if _OF_SCRIPT.search(name)] if half or spread is None else []
    others += [n for n, part in points.items() if half and "correctness_reward_func" in n and part.values.max() > 1]
    if not why and others:
        why = f"the script that it and {others[0]} are from gives 2 for a right answer and 0.5 for a format"
    notes += [f"{source} keeps its own name, for it is no share: {why}"] if why else []
    return bool(why)


def _aliased(name: str) -> Name:
    """Return the metric that the user named: [test.|train.]metric. Without a split Pass@k belongs to the test split,
    all else to the train split."""
    split, point, metric = name.partition(".")
    if not point or split not in ("test", "train"):
        split, metric = "test" if name.startswith("pass_at_") else "train", name
    return Name(split, {"reward": "reward_mean"}.get(metric, metric), "", -1)


def _own(source: str) -> Name:
    """Return the source's own name for a metric that the table lacks."""
    return Name("", plain(source)[:LONGEST_NAME], "", 0)


def _short_tasks(tasks: set[str]) -> dict[str, str]:
    """Return short names of tasks: openai/gsm8k becomes gsm8k, unless two tasks would share a name."""
    last = {task: task.rsplit("/", 1)[-1] for task in tasks}
    unique = len(set(last.values())) == len(last)
    return {task: plain(last[task] if unique else task)[:LONGEST_NAME] for task in tasks}


def _scored(name: Name, points: dict[str, Points], notes: list[str]) -> Name:
    """Rename the metric "score": to Pass@1 where it is 0 or 1, else to a mean reward. Where verl logs its smallest and
    largest values, those decide."""
    if name.metric != "score":
        return name
    bounds = [points[bound].values for bound in _BOUNDS if bound in points]
    if bounds:
        strict = len(bounds) == 2 and all(np.isin(values, (0.0, 1.0)).all() for values in bounds)
        yes = "critic/score is 0 or 1 at both ends in every step: its mean is taken as Pass@1"
        no = "critic/score is not 0 or 1: a mean reward"
    else:
        strict = name.split == "test" and all(
            part.values.min() >= 0 and part.values.max() <= 1
            for source, part in points.items()
            if (other := translate_metric(source)) and (other.metric, other.split) == ("score", "test")
        )
        yes = "test scores lie between 0 and 1 and are taken as Pass@1"
        no = "scores are taken as mean rewards: nothing says that they are 0 or 1"
    text = yes if strict else no
    if text not in notes:
        notes.append(text)
    return name._replace(metric="pass_at_1" if strict else "reward_mean")


def _as_fraction(source: str, name: Name, part: Points, notes: list[str], counted: bool) -> tuple[Name, Points]:
    """Turn a rate in per cent into a fraction. A rate that may be either, or may be a count, keeps the source's name.
    counted: whether the log has a metric that may count all answers."""
    values, inside = part.values, part.values.min() >= 0 and part.values.max() <= 1
    signs = counted + (source.rpartition("/")[2].lower() in _COUNTS) + (not inside)
    if signs > 1 and np.all(values == np.rint(values)):
        why = "may count answers"
    elif inside:
        return name, part
    elif values.min() < 0 or values.max() > 100:
        why = "has values outside 0 .. 100, so it is no rate"
    elif np.any((values > 0) & (values <= 1)):
        why = f"may be per cent or fractions ({values.max():g} and {values[values > 0].min():g})"
    else:
        notes.append(f"{source} is in per cent: divided by 100")
        return name, part._replace(values=np.round(values / 100, 12))
    notes.append(f"{source} {why}: kept under its own name")
    return _own(source), part


def _piece(
    source: str, name: Name, points: Points, counting: Counting, unprinted: set[tuple[str, int]]
) -> MetricSeries:
    """Return a metric by rounds; values of several updates in a round are averaged."""
    steps, values, n = points
    test = name.split == "test" or (name.split == "" and is_test_metric(source))
    rounds = counting.rounds(steps, test)
    values = name.scale * values if name.scale != 1.0 else values
    if not np.all(rounds[1:] > rounds[:-1]):
        rounds, first, counts = np.unique(rounds, return_index=True, return_counts=True)
        values = np.add.reduceat(values, first) / counts
        n = np.where(counts > 1, counts, (np.ones(len(steps)) if n is None else n)[first])
        steps = steps[first + counts - 1]
    hidden = [step for metric, step in unprinted if metric == source]
    steps = np.where(np.isin(steps, hidden), -1, steps) if hidden else steps
    return MetricSeries(name.split, name.task, name.metric, plain(source)[:LONGEST_NAME], rounds, values, n, steps)


def _from_records(points: dict[str, Points], tool: str) -> KnownDesign:
    """Return design facts from the log's values, each with a sentence: constant columns under any prefix
    (train/group_size), the learning rate, and updates a round of TRL, which logs a reward where it samples and a loss
    at every update."""
    facts: dict[str, Any] = {}
    assumed = []
    for field, names in _COLUMNS.items():
        columns = [(name, part) for name, part in points.items() if name.rsplit("/", 1)[-1] in names]
        values = {float(value) for _, part in columns for value in np.unique(part.values)}
        fact = as_count(values.pop()) if len(values) == 1 else None
        if fact is not None:
            facts[field] = fact
            assumed.append(f"{field}: {fact} in every {columns[0][0]} of the log")
    for name, part in points.items() if tool == "trl" else ():
        known = translate_metric(name)
        if known is not None and known[:2] == ("train", "reward_mean") and len(part.steps) >= FEWEST_STEPS:
            every, losses = set(map(int, np.diff(part.steps))), points.get("loss", points.get("train/loss"))
            if len(every) == 1 and every != {1} and losses is not None and np.all(np.diff(losses.steps) == 1):
                (facts["updates_per_round"],) = every
                assumed.append(
                    f"updates_per_round: {name} comes once in {min(every)} steps, for TRL logs it where it samples"
                )
    rate = _rate(points)
    if rate is not None:
        facts["learning_rate"], said = rate
        assumed.append(said)
    return KnownDesign(**facts, assumed=tuple(assumed))


def _rate(points: dict[str, Points]) -> tuple[float, str] | None:
    """Return the logged learning rate, the highest of a schedule, and a sentence on its source."""
    for name, part in points.items():
        known = translate_metric(name)
        if known is not None and known.metric == "learning_rate":
            highest = known.scale * float(part.values.max())
            if highest > 0:
                kind = "the" if np.all(part.values == part.values[0]) else "the highest"
                near = float(f"{highest:.0e}")  # a schedule may be logged beside its peak: 9.9978e-06 is of 1e-05
                rate = near if abs(highest - near) < 1e-3 * near else highest
                return rate, f"learning_rate: {kind} {name} of the log{', rounded' * (rate != highest)}"
    return None
