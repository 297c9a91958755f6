"""Repairs that are stated: restarts, repeats, per cent, separators, names of others; and what is refused instead."""

import csv
import json
from itertools import product

import pytest

from rftlab.shared.plumbing.errors import UserError
from rftlab.studies.readers import KnownDesign, read_logs
from tests.support.logs.formats import said
from tests.support.logs.reading import read, run_of, values


def rows(steps, start: float = 0.0) -> str:
    return "".join(f"{step},{start + step / 1000:.3f}\n" for step in steps)


def test_after_a_checkpoint_the_later_attempt_and_its_evaluations_count(tmp_path):
    run = run_of(tmp_path, "step,entropy\n" + rows(range(1, 31)) + rows(range(21, 41), 0.5))
    numbers = values([run], "entropy")
    assert (numbers[20], numbers[21], run.rounds) == (0.02, 0.521, 40)
    assert any("line 32: steps go back from 30 to 21" in note for note in run.notes)
    first = "".join(f"{s},0.{s:02d},{'0.9' if s == 28 else ''}\n" for s in range(1, 31))
    second = "".join(f"{s},0.{s:02d},{'0.5' if s == 40 else ''}\n" for s in range(21, 41))
    run = run_of(tmp_path, "step,entropy,eval_acc\n" + first + second)
    assert [key for key in said([run]) if key[1] == "test"] == [(40, "test", "pass_at_1")]
    line = "step:{} - critic/score/mean:{} - timing_s/gen:1.000{}\n"
    test = " - val-core/a/acc/mean@1:{}"
    first = "".join(line.format(s, f"0.{s}00", test.format("0.300") if s == 2 else "") for s in (1, 2, 3))
    again = f"Traceback\nstep:2{test.format('0.310')}\n" + line.format(3, "0.350", "")
    run = run_of(tmp_path, first + again + line.format(4, "0.400", test.format("0.450")), "restarted.log")
    assert values([run], "pass_at_1", "test") == {2: 0.31, 4: 0.45}
    assert values([run], "reward_mean")[3] == 0.35 and any("the last one taken" in note for note in run.notes)


def test_an_aborted_start_is_left_out_and_so_is_a_metric_that_it_alone_had(tmp_path):
    start = "step,entropy,eval_acc\n1,0.1,0.9\n2,0.2,\n" + "".join(f"{s},0.5,\n" for s in range(1, 41))
    assert {key[2] for key in said(read(tmp_path, start))} == {"entropy"}
    runs = read(tmp_path, start + "41,0.5,0.8\n")
    assert values(runs, "entropy")[1] == 0.5 and values(runs, "pass_at_1", "test") == {41: 0.8}


@pytest.mark.parametrize("first", [1, 2])
def test_steps_that_fall_where_rewards_begin_are_those_of_another_training(first, tmp_path):
    """One run may fine-tune on examples first; its steps from 1 to 20 come again or do not."""
    tuned = "".join(f"{s},0.9,\n" for s in range(1, 21))
    trained = "".join(f"{s},0.1,0.{s:02d}\n" for s in range(first, 16, first))
    run = run_of(tmp_path, "step,entropy,reward\n" + tuned + trained)
    assert values([run], "entropy") == dict.fromkeys(range(first, 16, first), 0.1) and "steps go back" in run.notes[0]
    two = read(tmp_path, "step,entropy,reward\n1,0.9,0.5\n" + tuned[8:] + "1,0.1,0.2\n2,0.1,0.3\n")
    assert [values([run], "reward_mean") for run in two] == [{1: 0.5}, {1: 0.2, 2: 0.3}]


def test_runs_that_stand_one_after_another_are_told_apart(tmp_path):
    """An aborted start belongs to the run behind it; one that got farther than half of what follows is a run."""
    text = "step,entropy\n" + rows(range(1, 31)) + rows(range(1, 6), 0.7) + rows(range(1, 21), 0.5)
    first, second = read(tmp_path, text)
    assert (first.name, second.name) == ("log", "log (2)")
    assert (values([first], "entropy")[30], values([second], "entropy")[20]) == (0.03, 0.52)
    assert "run 1 of 2 in the file, before line 32" in first.notes
    assert "run 2 of 2 in the file, from line 32 on" in second.notes
    assert any("steps go back from 5 to 1" in note for note in second.notes)
    (whole,) = read(tmp_path, "step,entropy\n" + rows(range(1, 6)) + rows(range(1, 21), 0.5))
    assert whole.name == "log"
    (shown,) = read(tmp_path, "step,entropy\n" + rows(range(1, 31)) + rows(range(1, 41)))
    assert len(values([shown], "entropy")) == 40, "shown twice, the second time with what came since"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("step,entropy\n" + "".join(rows([s]) + rows([s - 5], 0.5) for s in range(6, 60)), "as where runs are mixed"),
        ("step;entropy\n1;0,5\n2;0.5\n", "decimal comma and with decimal point"),
        *((text, "allowed") for text in ("step,entropy\n", "step,entropy\na,b\n", "a,b\n1,2\n", "hello\nworld\n", "x")),
        *((text, "allowed") for text in ('{"a": 1}\n{"a": 2}\n', "step,step\n1,2\n")),
        ("step,entropy\n" + rows(range(1_700_000_000, 1_700_000_009)), "no whole number from 0 to 999999999"),
        ("step,what,accuracy\n1,,0.5\n2,eval,0.3\n", "rows differ in 'what'"),
        ("step,dataset,accuracy\n1,gsm8k,0.5\n2,math,0.3\n", "rows differ in 'dataset'"),
        ('{"step": 0.5, "loss": 1}\n{"step": 1, "loss": 1}\n', "step of 1 of 2 records is no whole number"),
    ],
)
def test_what_cannot_be_repaired_is_a_line_that_names_the_file(text, said, tmp_path):
    with pytest.raises(UserError, match=said) as refused:
        read(tmp_path, text)
    assert "log.csv" in str(refused.value)


def test_updates_of_a_round_are_averaged_and_steps_that_are_missing_told(tmp_path):
    run = run_of(tmp_path, "step,grad_norm\n" + "".join(f"{s},1.0\n{s},3.0\n" for s in range(1, 5)))
    norms = run.curves[run.curves["metric"] == "grad_norm"]
    assert norms["value"].tolist() == norms["n"].tolist() == [2] * 4
    assert any("averaged as updates" in note for note in run.notes)
    run = run_of(tmp_path, "step,entropy\n" + rows([*range(1, 11), *range(15, 30)]))
    assert any("steps missing: 11 to 14" in note for note in run.notes)


def test_per_cent_become_fractions_and_what_may_be_either_does_not(tmp_path):
    per_cent = run_of(tmp_path, "step,eval_acc\n1,12.5\n2,0.0\n3,37.0\n")
    assert values([per_cent], "pass_at_1", "test") == {1: 0.125, 2: 0.0, 3: 0.37} and len(said([per_cent])) == 3
    assert any("per cent: divided by 100" in note for note in per_cent.notes)
    assert values(read(tmp_path, "step,eval_acc\n1,0.5%\n2,37.0%\n"), "pass_at_1", "test")[1] == 0.005
    either = run_of(tmp_path, "step,eval_acc\n1,0.5\n2,37.0\n")
    assert said([either]) == {} and any("may be per cent or fractions" in note for note in either.notes)


@pytest.mark.parametrize(
    ("separator", "cell"),
    [*product(";\t", ("0.25", "0,25", "2,5e-1", "25,0 %", "+0,25")), ("|", "0.25")],
)
def test_other_separators_and_decimal_commas(separator, cell, tmp_path):
    runs = read(tmp_path, f"step;entropy;eval_acc\n1;{cell};0\n2;{cell};{cell}\n3;0;0\n".replace(";", separator))
    assert values(runs, "entropy") == {1: 0.25, 2: 0.25, 3: 0}
    assert values(runs, "pass_at_1", "test") == {1: 0, 2: 0.25, 3: 0}


@pytest.mark.parametrize(("end", "kept"), [("3,0.30", True), ("3,0.3", False), ("3,", True)])
def test_a_last_cell_that_may_be_cut_is_left_out(end, kept, tmp_path):
    run = run_of(tmp_path, f"step,entropy\n1,0.10\n2,0.20\n{end}")
    assert ((3, "train", "entropy") in said([run])) == (kept and end != "3,")
    assert any("may be cut" in note for note in run.notes) != kept


def test_a_mean_of_zero_or_one_scores_is_pass_at_1_and_another_is_not(tmp_path):
    line = "step:{} - critic/score/mean:0.500 - critic/score/max:{} - critic/score/min:{} - timing_s/gen:1.000\n"
    strict = run_of(tmp_path, "".join(line.format(s, "1.000", "0.000") for s in (1, 2)), "a.log")
    graded = run_of(tmp_path, "".join(line.format(s, "1.000", "-1.000") for s in (1, 2)), "b.log")
    assert {key[2] for key in said([strict])} == {"pass_at_1"} and {key[2] for key in said([graded])} == {"reward_mean"}


def test_what_texts_of_logs_hold_is_shown_not_obeyed(tmp_path):
    name = "[red]\x1b[31m\u202e<b>"
    run = run_of(tmp_path, f"run_name,metric,step,value\n{name},train/entropy,1,0.5\n{name},\x1b]0;x\x07,1,0.5\n")
    cells = run.curves[["run", "metric", "source", "task"]].to_numpy().ravel()
    assert all(str(text).isprintable() for text in (run.name, *run.notes, *cells)) and "[red]" in run.name


def test_runs_whose_names_look_alike_stay_two(tmp_path):
    rows = "".join(
        f"{name},train/entropy,{step},{value}\n" for name, value in (("a\x07", 1), ("a\\x07", 9)) for step in "12"
    )
    runs = read(tmp_path, "run_name,metric,step,value\n" + rows)
    assert len({run.name for run in runs}) == 2 and [values([run], "entropy")[2] for run in runs] == [1, 9]


def test_the_design_is_told_by_constant_columns_and_outranked_by_flags(tmp_path):
    text = "step,entropy,group_size,num_questions,lr\n" + "".join(f"{s},0.5,8,32,1e-5\n" for s in range(1, 5))
    known = run_of(tmp_path, text).design
    assert (known.rollouts, known.prompts) == (8, 32)
    assert run_of(tmp_path, text, given=KnownDesign(rollouts=4)).design.rollouts == 4


@pytest.mark.parametrize(("times", "last", "kept"), [(10, 10, 9), (10, 4, 9), (1, 1, 9), (10, 10, 3)])
def test_values_that_a_callback_repeats_count_once(times, last, kept, tmp_path):
    told = [one for one in range(1, kept + 1) for _ in range(times if one < kept else last)]
    lines = [f"{step},{one / 100},{(one * 7) % 5}\n" for step, one in enumerate(told, start=1)]
    run = run_of(tmp_path, "step,reward,loss\n" + "".join(lines))
    repeated = times > 1 and kept > 8
    assert len(values([run], "reward_mean")) == (kept if repeated else len(told))
    assert any("stay for 10 steps" in note for note in run.notes) == repeated


def test_the_rate_of_a_schedule_that_was_logged_beside_its_peak_is_the_peak(tmp_path):
    for highest, rate in (("9.99779e-06", 1e-5), ("9.9e-06", 9.9e-6)):
        assert run_of(tmp_path, f"step,reward,lr\n1,0.1,0\n2,0.2,{highest}\n").design.learning_rate == rate


def test_a_checkpoint_has_the_name_of_its_run(tmp_path):
    for number in (100, 300):
        folder = tmp_path / "qwen-grpo" / f"checkpoint-{number}"
        folder.mkdir(parents=True)
        history = [{"step": step, "reward": step / 1000} for step in (100, number)]
        (folder / "trainer_state.json").write_text(json.dumps({"log_history": history}))
    for path in (folder / "trainer_state.json", folder, folder.parent):
        (run,) = read_logs([path])
        assert (run.name, run.rounds) == ("qwen-grpo", 300)


def test_lines_of_ms_swift_end_with_the_whole_history(tmp_path):
    line = '{{"loss": 0.5, "reward": 0.{0}, "global_step/max_steps": "{0}/3"}}\n'
    end = '{"train_runtime": 1.0, "log_history": [{"step": 1, "reward": 0.9}]}\n'
    run = run_of(tmp_path, "".join(map(line.format, (1, 2, 3))) + end, "logging.jsonl")
    assert values([run], "reward_mean") == {1: 0.1, 2: 0.2, 3: 0.3}


def test_the_longest_cell_of_other_readers_stays_as_it_is(tmp_path):
    before = csv.field_size_limit()
    run_of(tmp_path, "step,entropy\n" + rows(range(1, 31)))
    with pytest.raises(UserError, match="line 3: it is too long; allowed: cells and lines of at most"):
        run_of(tmp_path, 'step,entropy\n1,0.5\n2,"' + "1" * 2_000_000 + '"\n')
    assert csv.field_size_limit() == before
