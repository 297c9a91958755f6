"""`rftlab rollouts`: groups, changes and filters, and texts that a terminal must not obey."""

import json
from io import StringIO

import numpy as np
import pandas as pd
import pyarrow
import pyarrow.parquet
import pytest
from rich.console import Console

from rftlab import OwnData, TaskConfig, UserError
from rftlab.llm.config import LLMRun, Model, model_config
from rftlab.studies.cli.commands import parse
from rftlab.studies.cli.execute.show_rollouts import RecordFilter, groups_of_run
from rftlab.studies.cli.trained import ShowRollouts

HOSTILE = "\x1b[2Jgone\r\n[red]## \u202e1+2\x07\x9b5m"
QUESTIONS = [{"question": f"Say [b]{i}[/b]\nnow \x1b]0;title\x07", "answer": "1"} for i in range(4)]
REWARDS = {1: {0: (0, 0, 1), 1: (0, 0, 0), 2: (1, 1, 1)}, 2: {0: (1, 1, 1), 1: (0, 0, -2)}, 3: {2: (0, 0, 1)}}
"""By round and prompt."""


def write(place, rewards, **more):
    rows = []
    for index, prompts in rewards.items():
        for prompt, own in prompts.items():
            for i, reward in enumerate(own):
                text = f"round {index} prompt {prompt} response {i}" + HOSTILE * (prompt == 1)
                rows.append((index, prompt, i, "trained", text, [1] * (i + 1), float(reward), reward - 0.5, i != 2))
            rows.append((index, prompt, 9, "dropped", "never shown", [1], np.nan, np.nan, True))
    names = ["round", "prompt", "rollout", "role", "text", "tokens", "reward", "advantage", "finished"]
    frame = pd.DataFrame(rows, columns=names).assign(**more)
    place.parent.mkdir(exist_ok=True)
    pyarrow.parquet.write_table(pyarrow.Table.from_pandas(frame), place)


@pytest.fixture
def run(tmp_path):
    """A run's folder with three rounds in two files, and its data."""
    data = tmp_path / "data.jsonl"
    data.write_text("".join(json.dumps(row) + "\n" for row in QUESTIONS))
    task = TaskConfig("own", source=str(data), test_source=str(data), own=OwnData(template="{question}", system="Hi"))
    folder = tmp_path / "run"
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps(model_config(LLMRun(task, Model("somewhere")))))
    write(folder / "rollouts" / "000001-000002.parquet", {i: REWARDS[i] for i in (1, 2)})
    write(folder / "rollouts" / "000003-000003.parquet", {3: REWARDS[3]})
    return folder


def printed(folder, *flags):
    console = Console(file=StringIO(), width=60, force_terminal=True, color_system="truecolor")
    assert parse(["rollouts", str(folder), *flags]).execute(console) == 0
    return console.file.getvalue()


def test_the_worst_groups_come_first_or_those_that_changed_most(run):
    found = [group for (group,) in groups_of_run(run, RecordFilter(), "worst", 3)]
    assert [(group.round, group.prompt) for group in found] == [(2, 1), (1, 1), (3, 2)]
    assert found[0].mean == pytest.approx(-2 / 3) and found[0].responses["reward"].tolist() == [0, 0, -2]
    first = groups_of_run(run, RecordFilter(), "round", 2)
    assert [(group.round, group.prompt) for (group,) in first] == [(1, 0), (1, 1)]
    found = groups_of_run(run, RecordFilter(), "changed", 9)
    assert [(first.round, last.round) for first, last in found if first.prompt == 2] == [(1, 3)]
    assert {first.prompt: round(last.mean - first.mean, 3) for first, last in found} == {0: 0.667, 1: -0.667, 2: -0.667}
    with pytest.raises(UserError, match="no prompt came twice in these rounds"):
        groups_of_run(run, RecordFilter(first_round=3), "changed", 1)


def test_rounds_without_a_file_are_named(run):
    assert "missing" not in printed(run)
    write(run / "rollouts" / "000007-000009.parquet", {7: REWARDS[3]})
    assert "rounds 4 to 6 are missing" in printed(run)
    (run / "rollouts" / "000001-000002.parquet").unlink()
    assert "rounds 1 to 2 are missing" in printed(run)


@pytest.mark.parametrize(
    ("wanted", "expected"),
    [
        (RecordFilter(first_round=2, last_round=2), {(2, 0), (2, 1)}),
        (RecordFilter(prompt=2), {(1, 2), (3, 2)}),
        (RecordFilter(least_reward=1), {(1, 0), (1, 2), (2, 0), (3, 2)}),
        (RecordFilter(most_reward=-1), {(2, 1)}),
    ],
)
def test_filters(wanted, expected, run):
    found = [group for (group,) in groups_of_run(run, wanted, "worst", 99)]
    assert {(group.round, group.prompt) for group in found} == expected
    for group in found:
        assert group.responses["reward"].between(wanted.least_reward or -9, -1 if wanted.most_reward else 9).all()
    assert all(group.mean == pytest.approx(np.mean(REWARDS[group.round][group.prompt])) for group in found)


def test_nothing_that_a_terminal_obeys_is_printed_and_what_is_cut_says_so(run):
    text = printed(run, "--groups", "9", "--responses", "9") + printed(run, "--by", "changed")
    assert not {c for c in text if not c.isprintable()} - {"\n"}
    assert "\\x1b[2Jgone\\r\\n[red]## \\u202e1+2\\x07\\x9b5m" in text and "    user: Say [b]1[/b]\n" in text
    assert "    now \\x1b]0;title\\x07" in text and "    system: Hi\n" in text and "never shown" not in text
    text = printed(run, "--by", "round", "--groups", "1", "--responses", "2", "--letters", "8")
    assert text.count("  round 1 ...") == 2 and "... (19 more)" in text
    assert "(1 between)" in text and "3 tokens  round 1 " not in text and "3 tokens, cut  round 1 " in text


def test_prompts_of_other_data_are_not_shown(run, tmp_path):
    place = run / "checkpoints" / "000002"
    place.mkdir(parents=True)
    (place / "state.json").write_text(json.dumps({"data": "another"}))
    assert "shown by number alone: the data are not those" in printed(run)
    (tmp_path / "data.jsonl").unlink()
    text = printed(run, "--groups", "1")
    assert "shown by number alone: " in text and "cannot be read" in text and "round 2, prompt 1" in text


def test_what_is_no_record_is_one_line(run, tmp_path):
    records = run / "rollouts" / "000003-000003.parquet"
    for damage, said in (
        (lambda: records.write_bytes(b"PAR1 nothing"), "cannot be read"),
        (lambda: write(records, {3: REWARDS[3]}, reward="a"), "the column reward of another kind"),
        (lambda: write(records, {3: REWARDS[3]}, tokens=None), "the column tokens of another kind"),
        (lambda: pyarrow.parquet.write_table(pyarrow.table({"round": [1]}), records), "has no column prompt, rollout"),
    ):
        damage()
        with pytest.raises(UserError, match=said) as error:
            printed(run)
        assert "\n" not in str(error.value)
    records.unlink()
    records.symlink_to(tmp_path / "data.jsonl")
    with pytest.raises(UserError, match=r"000003-000003\.parquet cannot be read: it is a symbolic link, not a file"):
        groups_of_run(run, RecordFilter(), "round", 99)  # without a word it would be an answer from other rounds
    records.unlink()
    nothing = ((tmp_path, None, "records of rollouts"), (run, 77, "responses of these rounds"))
    for folder, prompt, said in nothing:
        with pytest.raises(UserError, match=f"has no {said}"):
            groups_of_run(folder, RecordFilter(prompt=prompt), "worst", 1)
    with pytest.raises(UserError, match="first_round = 5; allowed: at most last_round = 4"):
        ShowRollouts(run, first_round=5, last_round=4)
