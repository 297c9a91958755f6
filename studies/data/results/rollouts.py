"""The responses that a run sampled, from its records: groups (responses to one prompt in one round), the worst of them,
and prompts whose rewards changed most. Records are read twice, the texts of the chosen groups alone, so that memory
stays small.
"""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pandas as pd
import pyarrow
import pyarrow.parquet

from rftlab.shared.plumbing.errors import UserError, check
from rftlab.shared.plumbing.folders import entries, folder_below, opened
from rftlab.studies.data.runs.limits import Order

ROLLOUTS = "rollouts"
_NAME = re.compile(r"([0-9]{1,12})-([0-9]{1,12})\.parquet")
_NUMBERS = {
    "round": "i",
    "prompt": "i",
    "rollout": "i",
    "role": "OTU",
    "reward": "f",
    "advantage": "f",
    "finished": "b",
}
_TEXTS = {"tokens": "O", "text": "OTU"}


class RecordFilter(NamedTuple):
    """Which responses are asked for; None where any will do."""

    first_round: int | None = None
    last_round: int | None = None
    least_reward: float | None = None
    most_reward: float | None = None
    prompt: int | None = None


class GroupSummary(NamedTuple):
    """The trained responses to a prompt in a round."""

    round: int
    prompt: int
    mean: float
    """Of all its rewards, those that were not asked for included."""
    responses: pd.DataFrame
    """Those asked for, best first: columns rollout, reward, advantage, finished, length, text."""


class Change(NamedTuple):
    """A prompt at its first and its last visit."""

    first: GroupSummary
    last: GroupSummary

    @property
    def size(self) -> float:
        """By how much the mean reward rose."""
        return self.last.mean - self.first.mean


def record_files(folder: Path, wanted: RecordFilter) -> list[Path]:
    """Record files that may hold rounds that are asked for. Raises UserError where a run has no records."""
    place = folder_below(folder, ROLLOUTS)
    names = {path: match for path in entries(place) if (match := _NAME.fullmatch(path.name))}
    check(bool(names), f"{folder} has no records of rollouts; allowed: a folder of rftlab train after its first rounds")
    first, last = wanted.first_round or 0, wanted.last_round
    return [path for path, match in names.items() if int(match[2]) >= first and (last is None or int(match[1]) <= last)]


def unrecorded(folder: Path) -> list[tuple[int, int]]:
    """First and last rounds of the gaps between record files, which a run leaves nowhere; none where all are there."""
    gaps, end = [], 0
    spans = [path.stem.partition("-") for path in record_files(folder, RecordFilter())]
    for first, last in sorted((int(low), int(high)) for low, _, high in spans):
        gaps += [(end + 1, first - 1)] if first > end + 1 else []
        end = max(end, last)
    return gaps


def _read(path: Path, kinds: dict[str, str]) -> pd.DataFrame:
    """Columns of a record file, each of one of the kinds of numbers that its letters stand for. Raises UserError where
    it is damaged."""
    allowed = "allowed: a file that rftlab train wrote"
    try:
        with opened(path) as file:
            whole = pyarrow.parquet.ParquetFile(file, pre_buffer=False)
            missing = [name for name in kinds if name not in whole.schema_arrow.names]
            check(not missing, f"{path} has no column {', '.join(missing)}; {allowed}")
            frame = whole.read(columns=list(kinds), use_threads=False).to_pandas(use_threads=False)
    except (OSError, ValueError, pyarrow.ArrowException) as error:
        why = getattr(error, "strerror", None) or " ".join(str(error).split())
        raise UserError(f"{path} cannot be read: {why[:120]}; {allowed}") from None
    wrong = [name for name, letters in kinds.items() if frame[name].dtype.kind not in letters]
    check(not wrong, f"{path} has the column {', '.join(wrong)} of another kind; {allowed}")
    return frame


def _asked(frame: pd.DataFrame, wanted: RecordFilter) -> pd.DataFrame:
    """Trained responses of the rounds and the prompt that are asked for."""
    keep = frame["role"] == "trained"
    if wanted.first_round is not None:
        keep &= frame["round"] >= wanted.first_round
    if wanted.last_round is not None:
        keep &= frame["round"] <= wanted.last_round
    if wanted.prompt is not None:
        keep &= frame["prompt"] == wanted.prompt
    return frame[keep]


def _within(rewards: pd.Series, wanted: RecordFilter) -> pd.Series:
    keep = pd.Series(True, index=rewards.index)
    if wanted.least_reward is not None:
        keep &= rewards >= wanted.least_reward
    if wanted.most_reward is not None:
        keep &= rewards <= wanted.most_reward
    return keep


def summarise_groups(folder: Path, wanted: RecordFilter) -> pd.DataFrame:
    """A row for each group with a response that is asked for: round, prompt, mean."""
    tables = []
    for path in record_files(folder, wanted):
        frame = _read(path, _NUMBERS)
        frame = _asked(frame, wanted)
        has_one = _within(frame["reward"], wanted).groupby([frame["round"], frame["prompt"]]).any()
        means = frame.groupby(["round", "prompt"])["reward"].mean()
        tables.append(means[has_one].rename("mean").reset_index())
    groups = pd.concat(tables, ignore_index=True) if tables else pd.DataFrame(columns=["round", "prompt", "mean"])
    check(len(groups) > 0, f"{folder} has no responses of these rounds, rewards and prompts; allowed: others")
    return groups


def groups_of_run(folder: Path, wanted: RecordFilter, order: Order, count: int) -> list[GroupSummary]:
    """The first `count` groups: worst by mean reward, the later round first where equal; or in the order of rounds."""
    groups = summarise_groups(folder, wanted)
    by, rising = (["mean", "round", "prompt"], [True, False, True]) if order == "worst" else (["round", "prompt"], True)
    chosen = groups.sort_values(by, ascending=rising).head(count)
    return _with_texts(folder, wanted, chosen)


def changes_of_run(folder: Path, wanted: RecordFilter, count: int) -> list[Change]:
    """The prompts whose mean reward changed most between their first and last visit, either way."""
    visits = summarise_groups(folder, wanted).sort_values("round")
    ends = visits.groupby("prompt").agg(rounds=("round", "nunique"), first=("mean", "first"), last=("mean", "last"))
    ends = ends[ends["rounds"] > 1]
    check(len(ends) > 0, f"{folder}: no prompt came twice in these rounds; allowed: more rounds, or --by worst")
    sizes = (ends["last"] - ends["first"]).abs().sort_values(ascending=False, kind="stable")
    prompts = list(sizes.index[:count])
    mine = visits[visits["prompt"].isin(prompts)].groupby("prompt")
    both = pd.concat([mine.head(1), mine.tail(1)])
    by_prompt: dict[int, list[GroupSummary]] = {}
    for group in sorted(_with_texts(folder, wanted, both), key=lambda group: group.round):
        by_prompt.setdefault(group.prompt, []).append(group)
    return [Change(by_prompt[prompt][0], by_prompt[prompt][-1]) for prompt in prompts]


def _with_texts(folder: Path, wanted: RecordFilter, chosen: pd.DataFrame) -> list[GroupSummary]:
    """Groups with their responses, in the order of `chosen`."""
    by_key = {(group.round, group.prompt): group for group in _groups(folder, wanted, chosen)}
    return [by_key[row.round, row.prompt] for row in chosen.itertuples()]


def _groups(folder: Path, wanted: RecordFilter, chosen: pd.DataFrame) -> Iterator[GroupSummary]:
    keys = {(row.round, row.prompt): row.mean for row in chosen.itertuples()}
    rounds = {index for index, _ in keys}
    for path in record_files(folder, wanted):
        match = _NAME.fullmatch(path.name)
        if match is None or not any(int(match[1]) <= index <= int(match[2]) for index in rounds):
            continue
        frame = _asked(_read(path, _NUMBERS | _TEXTS), wanted)
        for key, own in frame[frame["round"].isin(rounds)].groupby(["round", "prompt"]):
            if key in keys:
                shown = own[_within(own["reward"], wanted)].copy()
                shown["length"] = shown["tokens"].map(len)
                ordered = shown.sort_values(["reward", "rollout"], ascending=[False, True], kind="stable")
                columns = ["rollout", "reward", "advantage", "finished", "length", "text"]
                yield GroupSummary(int(key[0]), int(key[1]), float(keys[key]), ordered[columns].reset_index(drop=True))
