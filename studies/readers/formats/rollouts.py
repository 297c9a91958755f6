"""Read logs with a row for each response, of which several share a prompt: JSON lines as verl's `rollout_data_dir` and
`validation_data_dir` (a file a step) and self-written loops have them, and TRL's `log_completions`, a table
`completions/completions_00010.parquet` a step.

A file, or a folder of them, is one run: mean rewards of each step, B and K as they are, the share of groups whose
rewards are all equal, and how many of each group were right. Prompts and responses themselves are not kept. Sources:
verl/trainer/ppo/ray_trainer.py (`_dump_generations`); trl/trainer/grpo_trainer.py (`log`), 1.16, whose tables have the
columns step, prompt, completion, one for each reward function, what those functions logged, and advantage. A table
holds what was generated last. Between two samplings the same responses are therefore written again, and after an
evaluation those of the evaluation.
"""

import json
import math
import re
from collections.abc import Collection, Iterator
from hashlib import blake2b
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rftlab.llm.tasks.files import read_table, reading
from rftlab.shared.plumbing.errors import check
from rftlab.shared.plumbing.folders import FILE, path_kind
from rftlab.studies.readers.formats import parquet
from rftlab.studies.readers.formats.json_records import parse_record
from rftlab.studies.readers.formats.tables import STEPS
from rftlab.studies.readers.names import LONGEST_NAME, translate_metric
from rftlab.studies.readers.run import GroupOutcomes, RawRun
from rftlab.studies.readers.text import Head, encoding_note, finite_number, read_head, read_lines, whole

if TYPE_CHECKING:
    import pandas as pd

FORMAT = "rollouts"
SETS = ("data_source", "dataset", "benchmark", "task")
"""Names of the field that holds the data set of a prompt."""
GROUPS = ("group_id", "prompt_id", "question_id", "problem_id", "uid", "input", "prompt")
"""Names of the field that responses to one prompt share, of which the first that is there is taken."""
RIGHT = ("acc", "correct", "is_correct", "accuracy")
REWARDS = ("score", "reward")
RESPONSES = ("output", "completion", "response", "sample_idx")
"""Names of fields that each response has of its own."""
_STEP = re.compile(r"(?:^|.*(?:step|rollout|round|completions)_?)0*(\d{1,9})", re.IGNORECASE)
_PLACES = ("*.jsonl", "step_*/*.jsonl", "completions_*.parquet", "completions/completions_*.parquet")
MAX_BAD, MAX_FILES, MAX_GROUPS = 50, 20_000, 500_000
_OWN = ("step", "prompt", "completion", "advantage")
_TABLE = re.compile(r"completions_(\d{1,9})\.parquet")
MAX_ROWS = 1_000_000


_Row = tuple[str, int, bytes, float, float | None, str]
"""Split, step, group, reward, whether it is right (None where nothing is said of that), and the benchmark that the
prompt is from ("" where none is named)."""


def is_rollouts(head: Head) -> bool:
    """Whether the first line of a file is a record of a response, or the file is a table of them."""
    if head.raw.startswith(parquet.START):
        return set(_OWN) <= set(parquet.column_names(head.path))
    record = parse_record(next((line for line in head.lines if line.strip()), "")) or {}
    parts = (any(name in record for name in names) for names in (GROUPS, RESPONSES))
    return all(parts) and _first(record, (*REWARDS, *RIGHT)) is not None


def read_rollouts(head: Head, columns: dict[str, str]) -> list[RawRun]:
    """Read the run of one file."""
    return [read_rollout_files(head.path, [head.path])]


def find_rollouts(folder: Path) -> list[Path]:
    """Return the files of a folder that hold responses, by step; [] where it has none."""
    paths = [path for place in _PLACES for path in sorted(folder.glob(place)) if path_kind(path) == FILE]
    check(len(paths) <= MAX_FILES, f"{folder} has {len(paths)} files; allowed: at most {MAX_FILES}")
    kinds: dict[tuple[int, str], list[Path]] = {}
    for path in paths:
        if path.stat().st_size > 0:
            kinds.setdefault((len(path.parts), re.sub(r"\d+", "", path.name)), []).append(path)
    return [path for own in kinds.values() if is_rollouts(read_head(own[0])) for path in own]


def read_rollout_files(place: Path, files: list[Path]) -> RawRun:
    """Read the run of files that hold responses. Raises UserError for unknown steps, and where none holds a
    response."""
    run = RawRun("", FORMAT, place="step")
    groups = _Groups()
    for path in files:
        head = read_head(path)
        run.notes += [note for note in encoding_note(head.encoding) if note not in run.notes]
        for row in _rows(head, run):
            groups.add(*row)
        check(len(groups.sums) <= MAX_GROUPS, f"{place} has over {MAX_GROUPS} groups; allowed: as many")
    check(bool(groups.sums), f"{place} holds no record of a response; allowed: JSON lines, one object a response")
    groups.into(run)
    return run


class _Groups:
    """Summaries of groups: the numbers of responses and of right ones, and sum, smallest and largest of the rewards."""

    def __init__(self) -> None:
        self.sums: dict[tuple[str, int, bytes], list[float]] = {}
        self.strict: dict[str, bool] = {}
        """For each split, whether every response was called right or wrong, as 1 or 0."""
        self.sets: set[str] = set()
        """Data sets of prompts in evaluations."""

    def add(self, split: str, step: int, group: bytes, reward: float, right: float | None, benchmark: str) -> None:
        """Add a response to the summary of its group."""
        value = reward if right is None else right
        self.sets |= {benchmark} if split == "test" else set()
        self.strict[split] = self.strict.get(split, True) and value in (0.0, 1.0)
        n, counted, total, least, most = self.sums.get((split, step, group), (0, 0.0, 0.0, reward, reward))
        sums = [n + 1, counted + value, total + reward, min(least, reward), max(most, reward)]
        self.sums[split, step, group] = sums

    def into(self, run: RawRun) -> None:
        """Add means of each step to a run as series, and outcomes of groups."""
        import pandas as pd

        rows = [(split, step, *sums) for (split, step, _), sums in self.sums.items()]
        groups = pd.DataFrame(rows, columns=["split", "step", "n", "right", "reward", "least", "most"])
        for place, ((split, step), part) in enumerate(groups.groupby(["split", "step"]), start=1):
            total = part["n"].sum()
            means = {"reward": sum(part["reward"]) / total}
            if self.strict[split]:
                means["accuracy"] = part["right"].sum() / total
            if split == "train":
                means["num_prompts"] = len(part)
                if part["n"].nunique() == 1:
                    means["group_size"] = part["n"].iloc[0]
                means["zero_signal_fraction"] = (part["least"] == part["most"]).mean()
            for name, value in means.items():
                run.add(f"{split}/{name}", int(step), float(value), place)
        mixed = [split for split in sorted(self.strict) if not self.strict[split]]
        for split in sorted(self.strict.keys() - mixed):
            counts = groups[groups["split"] == split].groupby(["step", "n", "right"]).size()
            steps, responses, right = (tuple(map(int, counts.index.get_level_values(i))) for i in range(3))
            run.outcomes += (GroupOutcomes(split, steps, responses, right, tuple(map(int, counts))),)
        sizes = groups.loc[groups["split"] == "train", "n"].value_counts()
        if len(sizes) > 1:  # lines repeated or lost, or prompts that came twice in a step
            usual, odd = sizes.index[0], sizes.sum() - sizes.iloc[0]
            run.notes.append(f"{odd} of {sizes.sum()} groups have other than {usual} responses")
        if len(self.sets) > 1:
            named = ", ".join(sorted(self.sets)[:4])
            run.notes.append(
                f"evaluations on several sets are taken as one ({named}): one of them a file tells them apart"
            )
        if mixed:
            run.notes.append(f"rewards of {', '.join(mixed)} are not 0 or 1: no counts of right responses are kept")


def _rows(head: Head, run: RawRun) -> Iterator[_Row]:
    """Yield the responses of a file."""
    path = head.path
    bad, split, beside = 0, _split_by_name(path), _step_beside(path)
    told = "taken as an evaluation, as names of files or their folder say"
    run.notes += [told] if split == "test" and told not in run.notes else []
    for place, record, end in _records(head, run):
        row = None if record is None else _row(record, split, beside, run)
        if row is None:
            bad += 1
            check(
                bad <= MAX_BAD,
                f"{path}: line {place} is no record of a response, as {MAX_BAD} before it; allowed: one object a "
                f"line with {GROUPS[0]} or prompt, a reward, and a step (or a folder named step_N)",
            )
            if bad <= 5:
                what = "is no record of a response" if end else "has no end"
                run.notes.append(f"{path.name}: line {place} {what}: left out")
            continue
        yield row


def _records(head: Head, run: RawRun) -> Iterator[tuple[int, dict | None, bool]]:
    """Yield the number of each line or row, its record, None where it is none, and whether the line has an end."""
    if head.raw.startswith(parquet.START):
        run.tool = "trl"
        table = _read_completions(head.path)
        yield from ((place, row, True) for place, row in _completion_records(table, run.notes))
        return
    for place, line, end in read_lines(head):
        if line.strip():
            yield place, parse_record(line), end


def _row(record: dict, split: str, beside: int | None, run: RawRun) -> _Row | None:
    """Return a record as a row; None where it lacks a group, a reward or a step."""
    name = next((name for name in GROUPS if record.get(name) is not None), None)
    right, reward = _first(record, RIGHT), _first(record, REWARDS)
    stated = next((whole(value) for key in STEPS if (value := finite_number(record.get(key))) is not None), None)
    step = beside if stated is None else stated
    if name is None or (right is None and reward is None) or step is None:
        return None
    run.tool = run.tool or ("verl" if {"input", "output", "score"} <= set(record) else "")
    if isinstance(record.get("split"), str):
        split = "test" if record["split"].partition("/")[0] in ("eval", "test", "val", "validation") else "train"
    group = blake2b(json.dumps(record[name], sort_keys=True).encode(), digest_size=8).digest()
    source = next((text for key in SETS if isinstance(text := record.get(key), str)), "")
    return split, step, group, float(reward if reward is not None else right or 0.0), right, source[:LONGEST_NAME]


def _first(record: dict, names: tuple[str, ...]) -> float | None:
    return next((value for name in names if (value := finite_number(record.get(name))) is not None), None)


def _split_by_name(path: Path) -> str:
    """Return the split by the names of a file and its folder, which tell evaluations."""
    text = f"{path.parent.name} {path.stem}".lower()
    return "test" if re.search(r"(?<![a-z])(eval[a-z]*|val|valid|validation|test)(?![a-z])", text) else "train"


def _step_beside(path: Path) -> int | None:
    """Return the step in the name of a file or of its folder; None where there is none."""
    match = _STEP.fullmatch(path.stem) or _STEP.fullmatch(path.resolve().parent.name)
    return int(match[1]) if match else None


def keep_sampled(files: list[Path], evaluated: Collection[int] = ()) -> tuple[list[Path], list[str]]:
    """Return the files, ordered by step, that hold a batch sampled for training, each batch once, and notes.
    evaluated: steps whose table an evaluation's has overwritten. Other files are left as they are."""
    kept: list[Path] = []
    before: list[str] = []
    for path in files:
        match = _TABLE.fullmatch(path.name)
        if match is None or int(match[1]) in evaluated:
            kept += [path] * (match is None)
            continue
        frame = _read_completions(path)
        now = [*frame["prompt"], *frame["completion"]]
        kept += [path] * (now != before)
        before = now
    left = len(files) - len(kept)
    note = f"{left} of {len(files)} tables of completions left out: an evaluation's, or a batch that was there already"
    return kept, [note] if left else []


def _read_completions(path: Path) -> "pd.DataFrame":
    """Read a table of completions with a row for each response: step, prompt and completion as texts, rewards as
    numbers. Raises UserError for a file that cannot be read."""
    table = read_table(path, MAX_ROWS)
    with reading(path):
        columns = {name: table[name].to_pylist() for name in _OWN[:3]}
        frame = table.drop_columns(list(_OWN)).to_pandas().select_dtypes("number")
    frame.insert(0, "step", columns["step"])
    for name in ("prompt", "completion"):
        frame[name] = [repr(value) for value in columns[name]]
    return frame


def _completion_records(frame: "pd.DataFrame", notes: list[str]) -> Iterator[tuple[int, dict[str, Any]]]:
    """Yield the number of each row and its record: step, prompt, completion, the reward, and accuracy where a reward is
    named for it. Rewards of several functions are added up, as TRL does with weights of 1; that is noted."""
    rewards = [name for name in frame.columns if name not in _OWN]
    right = next((name for name in rewards if _is_accuracy(name)), None)
    note = f"the reward is the sum of {', '.join(rewards)}, each with weight 1"
    if len(rewards) > 1 and note not in notes:
        notes.append(note)
    for place, row in enumerate(frame.to_dict("records"), start=1):
        values = [value for name in rewards if math.isfinite(value := float(row[name]))]
        record = {name: row[name] for name in _OWN[:3]} | ({"reward": sum(values)} if values else {})
        yield place, record | ({"accuracy": float(row[right])} if right else {})


def _is_accuracy(name: str) -> bool:
    """Whether a reward of this name measures accuracy, as metrics of that name do."""
    known = translate_metric(f"rewards/{name}/mean")
    return known is not None and known.metric == "pass_at_1"
