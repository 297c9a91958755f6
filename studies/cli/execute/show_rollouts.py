"""Groups of responses for the terminal. Texts come from a model and from data: characters that a terminal obeys are
written out, nothing is markup, and every text has an end."""

from pathlib import Path

import pandas as pd
from rich.console import Console

from rftlab.llm.stored import CHECKPOINTS, STATE, StoredRun, stored_run
from rftlab.llm.tasks.load import load_task
from rftlab.llm.tasks.task import Prompt
from rftlab.shared.plumbing.errors import UserError, plain
from rftlab.shared.plumbing.folders import numbered, read_json
from rftlab.studies.console.table import say
from rftlab.studies.data.results.rollouts import (
    Change,
    GroupSummary,
    Order,
    RecordFilter,
    changes_of_run,
    groups_of_run,
    unrecorded,
)

MAX_LINES = 40
"""Of a prompt."""


def show_rollouts(
    console: Console, folder: Path, wanted: RecordFilter, order: Order, groups: int, responses: int, letters: int
) -> None:
    """Print what is asked for. Raises UserError where the folder has none of it."""
    run = stored_run(folder)
    for low, high in unrecorded(folder):
        say(console, f"rounds {low} to {high} are missing: {folder} has no file with their records")
    shown: list[Change] | list[GroupSummary] = (
        changes_of_run(folder, wanted, groups) if order == "changed" else groups_of_run(folder, wanted, order, groups)
    )
    prompts = _prompts(console, run)
    for each in shown:
        first = each.first if isinstance(each, Change) else each
        say(console, _title(each))
        for line in _shown_prompt(prompts, first.prompt, letters):
            say(console, f"    {line}")
        for group in (each.first, each.last) if isinstance(each, Change) else (each,):
            if isinstance(each, Change):
                say(console, f"  round {group.round}")
            for line in _shown_responses(group.responses, responses, letters):
                say(console, f"  {line}")
        say(console, "")


def _title(each: Change | GroupSummary) -> str:
    if isinstance(each, Change):
        first, last = each
        return (
            f"prompt {first.prompt}: mean reward {first.mean:.3f} in round {first.round}, {last.mean:.3f} in round "
            f"{last.round} ({each.size:+.3f})"
        )
    return f"round {each.round}, prompt {each.prompt}: mean reward {each.mean:.3f}"


def _prompts(console: Console, run: StoredRun) -> tuple[Prompt, ...]:
    """The training prompts; none, and why, where the data are not there or are others now."""
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
    """Checksums of the data, as checkpoints say them."""
    sums = set()
    for place in numbered(run.folder / CHECKPOINTS):
        try:
            facts = read_json(place / STATE)
            sums |= {facts["data"]} if isinstance(facts, dict) and isinstance(facts.get("data"), str) else set()
        except (OSError, ValueError):
            continue
    return sums


def _shown_prompt(prompts: tuple[Prompt, ...], number: int, letters: int) -> list[str]:
    """A prompt as lines; chat messages by role."""
    if not 0 <= number < len(prompts):
        return []
    prompt = prompts[number]
    parts = [("", prompt)] if isinstance(prompt, str) else [(f"{each['role']}: ", each["content"]) for each in prompt]
    lines = [plain(line) for role, text in parts for line in f"{role}{cut_text(text, letters)}".split("\n")]
    return lines[:MAX_LINES] + ["..."] * (len(lines) > MAX_LINES)


def _shown_responses(responses: pd.DataFrame, count: int, letters: int) -> list[str]:
    """The best and the worst, a line each, and how many lie between."""
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
    """A text, and how much of it is left out, where it is longer than so many letters."""
    return text if len(text) <= letters else f"{text[:letters]}... ({len(text) - letters} more)"
