"""Show the responses that a run sampled, from its records, for `rftlab rollouts`.

Records are read twice, and texts only where a group was chosen, so that memory stays small. Texts come from a model and
from data: characters that a terminal obeys are written out, nothing is markup, and long texts are cut.
"""

import re
from pathlib import Path
from typing import Any, NamedTuple

import pandas as pd
import pyarrow
import pyarrow.parquet
from rich.console import Console

from rftlab.llm.stored import CHECKPOINTS, STATE, StoredRun, stored_run
from rftlab.llm.tasks.load import load_task
from rftlab.llm.tasks.task import Prompt
from rftlab.shared.plumbing.errors import UserError, check, plain
from rftlab.shared.plumbing.folders import entries, folder_below, numbered, opened, read_json
from rftlab.studies.console.table import say
from rftlab.studies.data.runs.limits import Order

MAX_LINES = 40
"""Largest number of lines of a prompt that are shown."""
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
    """Bounds on the responses that are asked for; None for no bound."""

    first_round: int | None = None
    last_round: int | None = None
    least_reward: float | None = None
    most_reward: float | None = None
    prompt: int | None = None


class GroupSummary(NamedTuple):
    """Trained responses to a prompt in a round."""

    round: int
    prompt: int
    mean: float
    """Mean of all their rewards, including those that were not asked for."""
    responses: pd.DataFrame
    """Responses that were asked for, best first: columns rollout, reward, advantage, finished, length, text."""


def _record_spans(folder: Path) -> dict[Path, tuple[int, int]]:
    """Return first and last round of each record file. Raises UserError where a run has no records."""
    names = {path: _NAME.fullmatch(path.name) for path in entries(folder_below(folder, "rollouts"))}
    spans = {path: (int(match[1]), int(match[2])) for path, match in names.items() if match}
    check(bool(spans), f"{folder} has no records of rollouts; allowed: a folder of rftlab train after its first rounds")
    return spans


def _unrecorded(folder: Path) -> list[tuple[int, int]]:
    """Return first and last rounds of the gaps between record files. A run leaves no gaps, so their files were lost."""
    gaps, end = [], 0
    for first, last in sorted(_record_spans(folder).values()):
        gaps += [(end + 1, first - 1)] if first > end + 1 else []
        end = max(end, last)
    return gaps


def _read(path: Path, kinds: dict[str, str], wanted: RecordFilter) -> pd.DataFrame:
    """Return the trained responses of a record file in the rounds and of the prompt that are asked for, and whether
    their rewards are (column `asked`). kinds: columns, each with the letters of the NumPy kinds that it may have.
    Raises UserError where the file is damaged."""
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
    wrong += ["tokens"] if "tokens" in kinds and not all(hasattr(cell, "__len__") for cell in frame["tokens"]) else []
    check(not wrong, f"{path} has the column {', '.join(wrong)} of another kind; {allowed}")
    frame = frame[(frame["role"] == "trained") & _between(frame["round"], wanted.first_round, wanted.last_round)]
    frame = frame[_between(frame["prompt"], wanted.prompt, wanted.prompt)]
    return frame.assign(asked=_between(frame["reward"], wanted.least_reward, wanted.most_reward))


def _between(values: pd.Series, low: float | None, high: float | None) -> pd.Series:
    """Return where values lie between two ends, either of which may be open."""
    keep = pd.Series(True, index=values.index)
    if low is not None:
        keep &= values >= low
    if high is not None:
        keep &= values <= high
    return keep


def _summaries(folder: Path, wanted: RecordFilter) -> pd.DataFrame:
    """Return a row for each group with a response that is asked for: round, prompt, mean, file."""
    tables = []
    for path, (first, last) in _record_spans(folder).items():
        if last < (wanted.first_round or 0) or (wanted.last_round is not None and first > wanted.last_round):
            continue
        groups = _read(path, _NUMBERS, wanted).groupby(["round", "prompt"])
        means = groups["reward"].mean()[groups["asked"].any()]
        tables.append(means.rename("mean").reset_index().assign(file=path))
    groups = pd.concat(tables, ignore_index=True) if tables else pd.DataFrame(columns=["round", "prompt", "mean"])
    check(len(groups) > 0, f"{folder} has no responses of these rounds, rewards and prompts; allowed: others")
    return groups


def groups_of_run(folder: Path, wanted: RecordFilter, order: Order, count: int) -> list[tuple[GroupSummary, ...]]:
    """Return the first `count` groups: worst by mean reward, the later round first where equal; or in the order of
    rounds. By change, return the prompts whose mean reward changed most between first and last visit, each with both
    groups."""
    groups = _summaries(folder, wanted)
    if order != "changed":
        names, rising = (
            (["mean", "round", "prompt"], [True, False, True]) if order == "worst" else (["round", "prompt"], True)
        )
        groups = groups.sort_values(names, ascending=rising).head(count)
        return [(group,) for group in _with_texts(groups, wanted)]
    visits = groups.sort_values("round").groupby("prompt")
    ends = visits.agg(rounds=("round", "nunique"), first=("mean", "first"), last=("mean", "last"))
    ends = ends[ends["rounds"] > 1]
    check(len(ends) > 0, f"{folder}: no prompt came twice in these rounds; allowed: more rounds, or --by worst")
    sizes = (ends["last"] - ends["first"]).abs().sort_values(ascending=False, kind="stable")
    prompts = sizes.index[:count]
    first, last = (table.set_index("prompt").loc[prompts].reset_index() for table in (visits.head(1), visits.tail(1)))
    return list(zip(_with_texts(first, wanted), _with_texts(last, wanted), strict=True))


def _with_texts(chosen: pd.DataFrame, wanted: RecordFilter) -> list[GroupSummary]:
    """Return groups with their responses, in the order of `chosen`."""
    with_texts: dict[Any, pd.DataFrame] = {}
    for path, own in chosen.groupby("file"):
        frame = _read(path, _NUMBERS | _TEXTS, wanted)
        frame = frame[frame["asked"] & frame["round"].isin(own["round"])]
        frame = frame.assign(length=frame["tokens"].map(len))
        frame = frame.sort_values(["reward", "rollout"], ascending=[False, True], kind="stable")
        with_texts |= dict(iter(frame.groupby(["round", "prompt"])))
    columns = ["rollout", "reward", "advantage", "finished", "length", "text"]
    return [
        GroupSummary(row.round, row.prompt, row.mean, with_texts[row.round, row.prompt][columns])
        for row in chosen.itertuples()
    ]


def show_rollouts(
    console: Console, folder: Path, wanted: RecordFilter, order: Order, groups: int, responses: int, letters: int
) -> None:
    """Print the groups and responses that are asked for. Raises UserError where the folder has none of them."""
    run = stored_run(folder)
    for low, high in _unrecorded(folder):
        say(console, f"rounds {low} to {high} are missing: {folder} has no file with their records")
    shown, prompts = groups_of_run(folder, wanted, order, groups), _prompts(console, run)
    for visits in shown:
        say(console, _title(*visits))
        for line in _shown_prompt(prompts, visits[0].prompt, letters):
            say(console, f"    {line}")
        for group in visits:
            if len(visits) > 1:
                say(console, f"  round {group.round}")
            for line in _shown_responses(group.responses, responses, letters):
                say(console, f"  {line}")
        say(console, "")


def _title(first: GroupSummary, last: GroupSummary | None = None) -> str:
    if last is None:
        return f"round {first.round}, prompt {first.prompt}: mean reward {first.mean:.3f}"
    return (
        f"prompt {first.prompt}: mean reward {first.mean:.3f} in round {first.round}, {last.mean:.3f} in round "
        f"{last.round} ({last.mean - first.mean:+.3f})"
    )


def _prompts(console: Console, run: StoredRun) -> tuple[Prompt, ...]:
    """Return the training prompts; none, with a printed reason, where the data are missing or have changed."""
    try:
        task = load_task(run.model.task)
        sums = _data_sums(run)
        if task.sha256 not in sums and sums:
            raise UserError("the data are not those that the run was trained on")
        return task["train"].prompts
    except UserError as error:
        say(console, f"prompts are shown by number alone: {error}")
        return ()


def _data_sums(run: StoredRun) -> set[str]:
    """Return the checksums of the training data in the checkpoints of a run."""
    sums = set()
    for place in numbered(run.folder / CHECKPOINTS):
        try:
            facts = read_json(place / STATE)
            sums |= {facts["data"]} if isinstance(facts, dict) and isinstance(facts.get("data"), str) else set()
        except (OSError, ValueError):
            continue
    return sums


def _shown_prompt(prompts: tuple[Prompt, ...], number: int, letters: int) -> list[str]:
    """Return a prompt as lines, chat messages by role."""
    if not 0 <= number < len(prompts):
        return []
    prompt = prompts[number]
    parts = [("", prompt)] if isinstance(prompt, str) else [(f"{each['role']}: ", each["content"]) for each in prompt]
    lines = [plain(line) for role, text in parts for line in f"{role}{cut_text(text, letters)}".split("\n")]
    return lines[:MAX_LINES] + ["..."] * (len(lines) > MAX_LINES)


def _shown_responses(responses: pd.DataFrame, count: int, letters: int) -> list[str]:
    """Return the best and the worst responses, a line each, and how many lie between."""
    best, n = (count + 1) // 2, len(responses)
    left_out = max(0, n - count)
    lines = []
    for i, row in enumerate(responses.itertuples()):
        if i == best and left_out:
            lines.append(f"({left_out} between)")
        if i < best or i >= best + left_out:
            cut = "" if row.finished else ", cut"
            lines.append(
                f"{row.reward:+.3f}  advantage {row.advantage:+.3f}  {row.length} tokens{cut}  "
                f"{plain(cut_text(str(row.text), letters))}"
            )
    return lines


def cut_text(text: str, letters: int) -> str:
    """Return a text, cut where it is longer than so many letters, with the number of letters that are left out."""
    return text if len(text) <= letters else f"{text[:letters]}... ({len(text) - letters} more)"
