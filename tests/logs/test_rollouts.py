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
from tests.support.machine.here import rftlab

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
    status, text = rftlab("signal", "--imported", "mine", "--results", tmp_path / "r")
    assert status == 0 and "12 groups of 4 responses" in text and "zero-variance groups" in text
    for wrong in (("--rounds", 50, 60), ("--pair", "tiny-mix97")):
        status, text = rftlab("signal", "--imported", "mine", "--results", tmp_path / "r", *wrong)
        assert status == 2 and text.count("\n") == 1


def test_a_run_without_such_rows_says_what_is_needed(tmp_path):
    (tmp_path / "t.csv").write_text("step,eval_acc\n1,0.5\n2,0.6\n")
    write_collection(tmp_path / "r", "t", read_logs([tmp_path / "t.csv"]))
    assert not read_collection(tmp_path / "r", "t")[0].outcomes
    with pytest.raises(
        UserError, match="no right responses by question; allowed: runs from logs with a row a response"
    ):
        imported_rates(tmp_path / "r", "t")


def completions(folder, found, **more):
    """What TRL's `log_completions` leaves behind: a table a step."""
    (folder / "completions").mkdir(parents=True)
    for s, prompts in enumerate(found):
        rows = [(q, k, right) for q, group in enumerate(prompts) for k, right in enumerate(group)]
        table = {
            "step": s + 1,
            "prompt": [[{"role": "user", "content": f"{s} {q}"}] for q, _, _ in rows],
            "completion": [f"{s} {q} {k}" for q, k, _ in rows],
            "accuracy_reward": [float(right) for _, _, right in rows],
            "advantage": 0.0,
        }
        frame = pd.DataFrame(table | more)
        frame.to_parquet(folder / "completions" / f"completions_{s + 1:05d}.parquet")
    return folder


def test_tables_of_completions_are_a_run(tmp_path):
    found = responses()
    folder = completions(tmp_path / "run", found)
    (run,) = read_logs([folder])
    (again,) = read_logs([folder / "completions"])
    assert said([run]) == said([again]) and run.outcomes == again.outcomes
    assert (run.tool, run.design.prompts, run.design.rollouts, run.rounds) == ("trl", PROMPTS, K, STEPS)
    assert [said([run])[s + 1, "train", "pass_at_1"] for s in range(STEPS)] == pytest.approx(found.mean(axis=(1, 2)))
    (one,) = read_logs([folder / "completions" / "completions_00003.parquet"])
    assert said([one])[3, "train", "pass_at_1"] == pytest.approx(found[2].mean())


def test_a_batch_that_is_written_again_counts_once(tmp_path):
    folder = completions(tmp_path / "run", responses())
    pd.read_parquet(folder / "completions" / "completions_00008.parquet").assign(step=9).to_parquet(
        folder / "completions" / "completions_00009.parquet"
    )
    (run,) = read_logs([folder])
    assert sum(run.outcomes[0].groups) == STEPS * PROMPTS and len(run.sources) == STEPS
    assert any("1 of 9 tables of completions left out" in note for note in run.notes)


def test_rewards_of_several_functions_are_added_up_and_accuracy_is_told_apart(tmp_path):
    found = responses()
    (run,) = read_logs([completions(tmp_path / "run", found, think_format_reward=0.5, text="x")])
    assert said([run])[2, "train", "pass_at_1"] == pytest.approx(found[1].mean())
    assert said([run])[2, "train", "reward_mean"] == pytest.approx(found[1].mean() + 0.5)
    assert any("sum of accuracy_reward, think_format_reward, each with weight 1" in note for note in run.notes)


def test_a_table_that_is_cut_is_one_line(tmp_path):
    path = completions(tmp_path / "run", responses()) / "completions" / "completions_00002.parquet"
    path.write_bytes(path.read_bytes()[:-40])
    with pytest.raises(UserError, match=r"completions_00002.parquet cannot be read as Parquet"):
        read_logs([tmp_path / "run"])


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
    assert any("2 of 48 groups have other than 4 responses" in note for note in run.notes)
    assert any("4.jsonl: line 24 has no end" in note for note in run.notes)
    (folder / "5.jsonl").write_text('{"input": 1}\n' * 60)
    with pytest.raises(UserError, match=r"5.jsonl: line 51 is no record of a response, as 50 before it"):
        read_logs([folder])


def test_validation_of_verl_is_of_the_test_split(tmp_path):
    (run,) = read_logs([written(tmp_path / "validation", responses())])
    assert {one.split for one in run.outcomes} == {"test"} and (3, "test", "pass_at_1") in said([run])
