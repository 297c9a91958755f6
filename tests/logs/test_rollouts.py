"""Logs with a response a line: B, K, mean rewards, zero-variance groups, and right responses by question."""

import json
import random

import numpy as np
import pandas as pd
import pytest

from rftlab.shared.plumbing.errors import UserError
from rftlab.studies.forecast.signal.signal import imported_rates
from rftlab.studies.readers import read_collection, read_logs
from rftlab.studies.readers.store import write_collection
from tests.support.logs.formats import said
from tests.support.logs.reading import notes, values
from tests.support.machine.here import refused, shown

STEPS, PROMPTS, K = 8, 6, 4


def responses(seed=0):
    """Right or wrong (steps, prompts, K), better with each step."""
    draw = random.Random(seed)
    return np.array(
        [[[draw.random() < 0.2 + 0.08 * s for _ in range(K)] for _ in range(PROMPTS)] for s in range(STEPS)]
    )


def verl(s, q, k, right):
    return {"input": f"{s} {q}", "output": "x", "gts": "1", "score": float(right), "step": s + 1}


def written(folder, found, change=lambda row: row):
    """The folder that a trainer leaves behind."""
    folder.mkdir(parents=True)
    for s, prompts in enumerate(found):
        path = folder / f"{s + 1}.jsonl"
        rows = (change(verl(s, q, k, right)) for q, group in enumerate(prompts) for k, right in enumerate(group))
        path.write_text("".join(json.dumps(one) + "\n" for one in rows))
    return folder


def test_a_folder_of_responses_is_a_run(tmp_path):
    found = responses()
    (run,) = read_logs([written(tmp_path / "run", found)])
    numbers = said([run])
    assert (run.tool, run.design.prompts, run.design.rollouts, run.rounds) == ("verl", PROMPTS, K, STEPS)
    for s, groups in enumerate(found):
        silent = np.mean(groups.min(axis=1) == groups.max(axis=1))
        assert numbers[s + 1, "train", "pass_at_1"] == pytest.approx(groups.mean())
        assert numbers[s + 1, "train", "zero_signal_fraction"] == pytest.approx(silent)
    (own,) = run.outcomes
    assert sum(own.groups) == STEPS * PROMPTS and set(own.responses) == {K}
    assert np.dot(own.right, own.groups) == found.sum() and set(own.rounds) == set(range(1, STEPS + 1))


def test_outcomes_are_kept_and_give_the_pass_rates_of_rounds(tmp_path):
    found = responses()
    runs = read_logs([written(tmp_path / "run", found)])
    write_collection(tmp_path / "r", "mine", runs)
    assert read_collection(tmp_path / "r", "mine")[0].outcomes == runs[0].outcomes
    measured, told = imported_rates(tmp_path / "r", "mine", (2, 3))
    assert sorted(measured.counts) == sorted(found[1:3].sum(axis=2).ravel()) and measured.responses == K
    assert told == f"{2 * PROMPTS} groups of {K} responses (train, rounds 2 to 3)"
    last, _ = imported_rates(tmp_path / "r", "mine#run")
    assert sorted(last.counts) == sorted(found[6:].sum(axis=2).ravel())
    ask = ("signal", "--imported", "mine", "--results", tmp_path / "r")
    text = shown(*ask)
    assert "12 groups of 4 responses" in text and "zero-variance groups" in text
    refused(*ask, "--rounds", 50, 60)
    refused(*ask, "--pair", "tiny-mix97")


def test_a_run_without_such_rows_says_what_is_needed(tmp_path):
    (tmp_path / "t.csv").write_text("step,eval_acc\n1,0.5\n2,0.6\n")
    write_collection(tmp_path / "r", "t", read_logs([tmp_path / "t.csv"]))
    assert not read_collection(tmp_path / "r", "t")[0].outcomes
    with pytest.raises(UserError, match="no right responses by question; allowed: runs from logs with a row a resp"):
        imported_rates(tmp_path / "r", "t")


def completions(folder, found, **more):
    """What TRL's `log_completions` leaves behind: a table a step."""
    (folder / "completions").mkdir(parents=True)
    for s, prompts in enumerate(found):
        rows = [
            (s + 1, [{"role": "user", "content": f"{s} {q}"}], f"{s} {q} {k}", float(right), 0.0)
            for q, group in enumerate(prompts)
            for k, right in enumerate(group)
        ]
        frame = pd.DataFrame(rows, columns=["step", "prompt", "completion", "accuracy_reward", "advantage"])
        frame.assign(**more).to_parquet(folder / "completions" / f"completions_{s + 1:05d}.parquet")
    return folder


def test_tables_of_completions_are_a_run(tmp_path):
    found = responses()
    folder = completions(tmp_path / "run", found)
    (run,) = read_logs([folder])
    (again,) = read_logs([folder / "completions"])
    assert said([run]) == said([again]) and run.outcomes == again.outcomes
    assert (run.tool, run.design.prompts, run.design.rollouts, run.rounds) == ("trl", PROMPTS, K, STEPS)
    assert list(values([run], "pass_at_1").values()) == pytest.approx(found.mean(axis=(1, 2)))
    tables = [folder / "completions" / f"completions_0000{step}.parquet" for step in range(10)]
    assert values(read_logs([tables[3]]), "pass_at_1")[3] == pytest.approx(found[2].mean())
    pd.read_parquet(tables[8]).assign(step=9).to_parquet(tables[9])
    (run,) = read_logs([folder])  # a batch that is written again counts once
    assert sum(run.outcomes[0].groups) == STEPS * PROMPTS and len(run.sources) == STEPS
    assert "1 of 9 tables of completions left out" in notes([run])
    tables[2].write_bytes(tables[2].read_bytes()[:-40])
    with pytest.raises(UserError, match=r"completions_00002.parquet cannot be read as Parquet"):
        read_logs([folder])


def test_rewards_of_several_functions_are_added_up_and_accuracy_is_told_apart(tmp_path):
    runs = read_logs([completions(tmp_path / "run", responses(), think_format_reward=0.5, text="x")])
    mean = responses()[1].mean()
    assert values(runs, "pass_at_1")[2] == pytest.approx(mean)
    assert values(runs, "reward_mean")[2] == pytest.approx(mean + 0.5)
    assert "sum of accuracy_reward, think_format_reward, each with weight 1" in notes(runs)


def test_rewards_that_are_not_0_or_1_are_means_without_counts(tmp_path):
    (run,) = read_logs([written(tmp_path / "run", responses(), lambda row: row | {"score": row["score"] - 0.5})])
    assert run.outcomes == () and (1, "train", "pass_at_1") not in said([run])
    assert any("not 0 or 1" in note for note in run.notes)
    graded = written(tmp_path / "two", responses(), lambda row: row | {"score": 0.3, "acc": row["score"] > 0})
    (run,) = read_logs([graded])
    assert run.outcomes and said([run])[1, "train", "reward_mean"] == pytest.approx(0.3)


def test_lost_and_repeated_lines_are_noted(tmp_path):
    folder = written(tmp_path / "run", responses())
    lines = (folder / "3.jsonl").read_text().splitlines(keepends=True)
    (folder / "3.jsonl").write_text("".join(lines[1:]))
    (folder / "4.jsonl").write_text((folder / "4.jsonl").read_text()[:-20])
    (run,) = read_logs([folder])
    assert "2 of 48 groups have other than 4 responses" in notes([run])
    assert "4.jsonl: line 24 has no end" in notes([run])
    (folder / "5.jsonl").write_text('{"input": 1}\n' * 60)
    with pytest.raises(UserError, match=r"5.jsonl: line 51 is no record of a response, as 50 before it"):
        read_logs([folder])


def test_validation_of_verl_is_of_the_test_split(tmp_path):
    (run,) = read_logs([written(tmp_path / "validation", responses())])
    assert {one.split for one in run.outcomes} == {"test"} and (3, "test", "pass_at_1") in said([run])
    mixed = written(tmp_path / "test", responses(), lambda row: row | {"data_source": "ab"[len(row["input"]) % 2]})
    (mixed / "1.jsonl").write_text((mixed / "1.jsonl").read_text().replace('"b"', '"c"'))
    assert "evaluations on several sets are taken as one (b, c)" in notes(read_logs([mixed]))
