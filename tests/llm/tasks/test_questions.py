"""Which questions are evaluated: the flag for all of them, from the command line to identity, manifest, plan and
report."""

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

from rftlab import Evaluation, UserError, start_at
from rftlab.studies.cli.commands import parse
from rftlab.studies.cli.execute.plan import assume_lengths
from rftlab.studies.cli.execute.study import _questions
from rftlab.studies.data.paper.questions import (
    QuestionCount,
    count_questions,
    evaluated_on,
    on_whole_sets,
    subset_error,
)
from rftlab.studies.data.runs.files import checksummed
from rftlab.studies.data.runs.store import open_store
from rftlab.studies.data.runs.study import Study, checked_study, read_study, study_path, write_study
from tests.support.machine.here import rftlab

QWEN = start_at("qwen-gsm8k", "llm")


def test_the_questions_of_a_run():
    every = QuestionCount(1319, 1319)
    assert count_questions(QWEN) == {"train": QuestionCount(500, 7473), "test": every}
    assert count_questions(on_whole_sets(QWEN)) == {"train": QuestionCount(7473, 7473), "test": every}
    few = replace(QWEN, evaluation=Evaluation(samples=3, test_subset=7))
    assert on_whole_sets(few).evaluation == Evaluation(samples=3, train_subset=0)
    evaluation = Evaluation(train_subset=9999, test_subset=30, split="validation")
    tiny = count_questions(replace(start_at("tiny-mix97", "llm"), evaluation=evaluation))
    assert tiny == {"train": QuestionCount(2048, 2048), "test": QuestionCount(30, 250)}


def test_the_error_of_a_part_is_never_below_the_measured_one():
    rng, n, p = np.random.default_rng(0), 50, np.random.default_rng(1).beta(0.5, 0.5, 2000)
    means = [(rng.random(n) < p[rng.permutation(len(p))[:n]]).mean() for _ in range(2000)]
    assert subset_error([p.mean()], n) == pytest.approx(np.std(means), rel=0.06)
    assert subset_error([0.1, 0.4, 0.95, np.nan], 10_000) == pytest.approx(np.sqrt(0.24 / 10_000), rel=1e-3)
    assert np.isnan(subset_error([np.nan], 100))
    assert subset_error([0.0], 4) == subset_error([1.0], 4) == pytest.approx(np.sqrt(0.25 * 0.75 / 8)), (
        "none right of four is not certainty"
    )


def test_local_files_have_the_questions_that_they_have(tmp_path):
    for split, count in (("train", 7), ("test", 3)):
        (tmp_path / f"{split}.jsonl").write_text('{"question": "What?", "answer": "#### 1"}\n' * count)
    local = replace(QWEN, task=replace(QWEN.task, source=str(tmp_path)))
    assert count_questions(local) == {"train": QuestionCount(7, 7), "test": QuestionCount(3, 3)}
    assert evaluated_on(local) == "Pass@1 on all 7 training questions; on all 3 unseen questions"


def test_whole_sets_are_part_of_a_points_identity_and_of_the_manifest(tmp_path):
    part, whole = (checked_study("llm", ["qwen-gsm8k"], 1, None, flag) for flag in (False, True))
    assert not {point.id for point in part.points()} & {point.id for point in whole.points()}
    assert all(point.run.evaluation == on_whole_sets(QWEN).evaluation for point in whole.points())
    open_store(tmp_path)
    for study in (part, whole):
        write_study(tmp_path, study)
        assert read_study(tmp_path, "llm") == study
    study_path(tmp_path, "llm").write_bytes(checksummed(part._asdict() | {"whole_sets": "yes"}, "llm"))
    with pytest.raises(UserError, match=r"study-llm\.json cannot be read \(whole_sets; allowed: true, false\)"):
        read_study(tmp_path, "llm")


def test_the_flag_of_both_commands_reaches_the_plan(tmp_path):
    lines = (
        ("train", "--pair", "qwen-gsm8k"),
        ("reproduce", "--level", "llm", "--pair", "qwen-gsm8k", "--seeds", "1", "--results", str(tmp_path / "none")),
    )
    for line in lines:
        part, whole = (rftlab(*line, "--dry-run", "--gpu", "H100", *more)[1] for more in ((), ("--whole-sets",)))
        assert "Pass@1 on 500 of 7,473 training questions" in part and "Pass@1 on all 7,473 training questions" in whole
    assert assume_lengths(QWEN, parse([*lines[0], "--dry-run"]).plan)[2:] == (7473, 1319)
    status, printed = rftlab("reproduce", "--whole-sets")
    assert status == 2 and "whole_sets with level sim" in printed and printed.count("\n") == 1


def test_a_report_says_which_error_a_part_leaves():
    rates = {"train_pass_at_1": [0.5, 0.1, 0.2], "test_pass_at_1": 0.4}
    curves = pd.DataFrame({"pair": "qwen-gsm8k", "round": [0, 20, 20], "planned_rounds": 20} | rates)
    (note,) = _questions(Study("llm", ["qwen-gsm8k"], 1, 20), curves)
    assert note.startswith("qwen-gsm8k: Pass@1 on 500 of 7,473 ") and "at most 0.018)" in note
    assert _questions(Study("sim", ["qwen-gsm8k"], 1, 20), curves) == []
