"""Logs as people damage them by hand: what is read is true, what is left out is told, the rest is a line."""

import json
from decimal import Decimal

import pandas as pd
import pytest

from rftlab.shared.plumbing.errors import UserError
from rftlab.studies.readers import read_logs
from tests.support.logs.reading import notes, read, run_of, values

STEPS = range(1, 13)
TABLE = "step;reward;response_length\n"


def refused(tmp_path, data: str | bytes, name: str = "log.csv") -> str:
    with pytest.raises(UserError) as error:
        read(tmp_path, data, name)
    text = str(error.value)
    assert name in text and "allowed" in text and text.isprintable()
    return text


def records(*rows: str) -> str:
    """JSON lines: a step each, and what a row says beside it."""
    return "".join(f'{{"step": {step}, {row}}}\n' for step, row in enumerate(rows, start=1))


def test_thousands_are_not_read_as_decimals(tmp_path):
    text = refused(tmp_path, TABLE + "".join(f"{step};0;1,{step:03d}\n" for step in STEPS))
    assert "'1,001'" in text and "thousands" in text
    text = refused(tmp_path, "step,reward\n" + "".join(f'{step},"1,2{step:02d}.5"\n' for step in STEPS))
    assert "line 2: reward = '1,201.5' is no number" in text
    low = "".join(f"{step};0,{step:03d};{step}\n" for step in range(1, 301))
    runs = read(tmp_path, TABLE + low + "301;0,301;1.301\n302;0,302;302\n")
    assert 301 not in values(runs, "response_length") and values(runs, "response_length")[302] == 302
    assert "line 302: response_length = '1.301' is no number" in notes(runs)


@pytest.mark.parametrize(
    "whole",
    [
        "step,reward\n1,0.25\n2,0.50\n3,0.75\n",
        records(*(f'"reward": {value}' for value in ("0.25", "0.50", "0.75"))),
        "".join(f"step:{s} - critic/score/mean:0.{25 * s} - actor/grad_norm:0.1\n" for s in (1, 2, 3)),
    ],
)
def test_a_hole_of_zero_bytes_in_a_number_is_none(whole, tmp_path):
    runs = read(tmp_path, whole.replace("0.50", "0.\0"))
    assert values(runs, "reward_mean") == {1: 0.25, 3: 0.75} and "left out" in notes(runs)
    runs = read(tmp_path, whole.encode("utf-32"))
    assert len(values(runs, "reward_mean")) == 3 and "utf-32" in notes(runs)


@pytest.mark.parametrize("row", ['"reward": 0.1, "reward": 0.9', '"data": {"reward": 0.1}, "metrics": {"reward": 0.9}'])
def test_a_name_that_is_twice_in_a_record_is_left_out(row, tmp_path):
    runs = read(tmp_path, records('"reward": 0.5', row, '"reward": 0.7'), "log.jsonl")
    assert values(runs, "reward_mean") == {1: 0.5, 3: 0.7} and "left out" in notes(runs)


def test_a_name_that_is_twice_in_another_format_is_left_out_or_refused(tmp_path):
    line = "step:{} - critic/score/mean:0.5 - actor/grad_norm:0.1{}\n"
    verl = "".join(line.format(s, " - critic/score/mean:0.9" if s == 2 else "") for s in (1, 2, 3))
    assert values(read(tmp_path, verl, "verl.log"), "reward_mean") == {1: 0.5, 3: 0.5}
    trl = "".join(f"{{'loss': 0.1, 'reward': 0.5{', ' if s == 2 else ''}}}\n" for s in (1, 2, 3))
    runs = read(tmp_path, trl.replace(", }", ", 'reward': 0.9}"), "trl.log")
    assert values(runs, "reward_mean") == {1: 0.5, 3: 0.5} and "first in line 2" in notes(runs)
    row = '{{"step": {}, "input": "q", "output": "x", "score": 0.0{}}}\n'
    rollouts = "".join(row.format(s, ', "score": 1.0' if s == 2 else "") for s in (1, 2, 3))
    (tmp_path / "run").mkdir()
    runs = read(tmp_path / "run", rollouts, "rollouts.jsonl")
    assert values(runs, "reward_mean") == {1: 0, 3: 0} and "line 2" in notes(runs)
    state = '{"log_history": [{"step": 1, "reward": 0.1, "reward": 0.9}]}'
    assert "'reward' is there twice" in refused(tmp_path, state, "trainer_state.json")


def test_a_step_beyond_all_is_told(tmp_path):
    line = "step:{} - critic/score/mean:0.5 - actor/grad_norm:0.1\n"
    runs = read(tmp_path, line.format(1) + line.format(999_999_999_999) + line.format(2), "verl.log")
    assert list(values(runs, "reward_mean")) == [1, 2] and "line 2" in notes(runs)


@pytest.mark.parametrize("cell", ["0.5", "-3", '"1,000"', "10000000000", "1k", "100%"])
def test_steps_that_are_none_are_shown(cell, tmp_path):
    text = refused(tmp_path, "step,reward\n" + f"{cell},0.5\n" * 3)
    assert "line 2: step = " in text and "whole number from 0 to 999999999" in text
    runs = read(tmp_path, "step,reward\n1,0.1\n2,0.2\n" + f"{cell},0.5\n")
    assert values(runs, "reward_mean") == {1: 0.1, 2: 0.2} and "line 4: step = " in notes(runs)


def test_a_quote_without_an_end_names_all_lines_that_it_takes(tmp_path):
    text = "step,reward,entropy\n" + "".join(f"{step},0.5,0.1\n" for step in STEPS)
    runs = read(tmp_path, text.replace("4,0.5", '4,"0.5'))
    assert list(values(runs, "entropy")) == [1, 2, 3] and "lines 5 to 13" in notes(runs)


def test_a_line_that_is_too_long_is_named_and_a_long_header_is_read_whole(tmp_path):
    assert "line 2:" in refused(tmp_path, "step,reward,note\n1,0.1," + "a" * 3_000_000 + "\n2,0.2,b\n")
    columns = ",".join(f"m{i}" for i in range(400_000))
    assert "more than 20000 columns" in refused(tmp_path, f"step,{columns}\n")
    names = [f"a_metric_with_a_name_that_is_rather_long/{i:05d}" for i in range(7000)]
    (run,) = read(tmp_path, ",".join(["step", *names]) + "\n" + "".join(f"{s}{',0.5' * 7000}\n" for s in (1, 2)))
    assert len(run.pieces) == 7000


@pytest.mark.parametrize("sign", ["\u2028", "\x85", "\x0b", "\x0c"])
def test_only_ends_of_lines_end_lines(sign, tmp_path):
    rows = (json.dumps({"step": s, "prompt": f"a{sign}b", "reward": 0.5}, ensure_ascii=False) for s in STEPS)
    assert len(values(read(tmp_path, "\n".join(rows) + "\n", "log.jsonl"), "reward_mean")) == 12
    table = f"step,re{sign}ward,entropy\n" + "".join(f"{step},0.1,0.2\n" for step in STEPS)
    assert len(values(read(tmp_path, table), "entropy")) == 12


@pytest.mark.parametrize("column", ["run", "arm", "condition", "algo"])
def test_a_column_that_names_what_was_varied_names_runs(column, tmp_path):
    text = f"{column},step,reward\n" + "".join(f"{arm},{s},0.{s}\n" for arm in ("GRPO", "from SFT") for s in (1, 2, 3))
    assert [run.name for run in read(tmp_path, text)] == ["GRPO", "from SFT"]


def test_runs_that_are_numbered_are_told_apart(tmp_path):
    rows = [json.dumps({"run_id": run, "step": step, "reward": run + step / 100}) for step in STEPS for run in (0, 1)]
    runs = read(tmp_path, "\n".join(rows) + "\n", "log.jsonl")
    assert [run.name for run in runs] == ["0", "1"] and values(runs[1:], "reward_mean")[12] == 1.12


def test_per_cent_and_steps_in_quotes_and_columns_of_another_length(tmp_path):
    lines = '{"step": "100%", "reward": 0.1}\n{"step": "200%", "reward": 0.2}\n'
    assert "is no whole number from 0" in refused(tmp_path, lines, "a.jsonl")
    text = "".join(json.dumps({"step": str(step), "eval_acc": f"{step}.5%"}) + "\n" for step in STEPS)
    assert values(read(tmp_path, text, "log.jsonl"), "pass_at_1", "test")[12] == 0.125
    columns = {"step": [1, 2, 3], "reward": [0.1, 0.2], "entropy": [0.3, 0.2, 0.1]}
    runs = read(tmp_path, json.dumps(columns), "log.json")
    assert len(values(runs, "entropy")) == 3 and "another length than step left out: reward" in notes(runs)


def test_types_of_parquet(tmp_path):
    columns = {"step": STEPS, "reward": [Decimal(step) / 100 for step in STEPS], "run": ["a"] * 6 + [None] * 6}
    columns |= {"response_length": pd.array([None, *range(11)], "Int64"), "text": [f"{step}.5" for step in STEPS]}
    pd.DataFrame(columns).to_parquet(tmp_path / "log.parquet")
    runs = read_logs([tmp_path / "log.parquet"])
    assert [(run.name, run.rounds) for run in runs] == [("a", 6), ("log", 12)]
    assert values(runs, "reward_mean")[12] == 0.12 and 1 not in values(runs, "response_length")
    assert "left out: text" in notes(runs)


@pytest.mark.parametrize(("folder", "split"), [("test_run", "test"), ("evals", "test"), ("value_model", "train")])
def test_responses_of_an_evaluation_are_told_by_whole_words_and_that_is_said(folder, split, tmp_path):
    (tmp_path / folder).mkdir()
    row = '{{"step": {}, "input": "q", "output": "x", "score": 1.0}}\n'
    runs = read(tmp_path / folder, "".join(row.format(step) for step in (1, 2, 3)), "rollouts.jsonl")
    assert values(runs, "reward_mean", split) and ("evaluation" in notes(runs)) == (split == "test")


@pytest.mark.parametrize("cell", ["", "NaN", "None", "null"])
def test_rows_without_a_step_are_no_reason_to_doubt_the_others(cell, tmp_path):
    rows = "".join(f"{cell},0.9\n{cell},0.9\n{step},0.5\n" for step in STEPS)
    assert values(read(tmp_path, "step,reward\n" + rows), "reward_mean") == dict.fromkeys(STEPS, 0.5)


@pytest.mark.parametrize(
    ("spread", "other", "taken"),
    [(0.45, "reward_std", True), (0.8, "reward_std", False), (None, "reward_std", True),
     (None, "rewards/xmlcount_reward_func", False), (None, "rewards/int_reward_func/mean", False)],
)  # fmt: skip
def test_a_reward_that_gives_more_than_1_for_a_right_answer_is_no_pass_at_1(spread, other, taken, tmp_path):
    rows = [{"step": s, "rewards/correctness_reward_func/mean": 0.2 + s / 100, other: 0.1} for s in range(1, 9)]
    rows = [row | ({} if spread is None else {"rewards/correctness_reward_func/std": spread}) for row in rows]
    run = run_of(tmp_path, "".join(json.dumps(row) + "\n" for row in rows), "log.jsonl")
    assert bool(values([run], "pass_at_1")) == taken
    assert any("for it is no share" in note for note in run.notes) != taken


@pytest.mark.parametrize(("right", "form", "taken"), [(2.0, 0.5, False), (2.0, 0.9, True), (1.0, 0.5, True)])
def test_a_reward_for_a_format_beside_one_that_gives_2_is_no_share(right, form, taken, tmp_path):
    """The script behind these names gives 0.5 for a format."""
    names = ("rewards/correctness_reward_func", "rewards/soft_format_reward_func")
    rows = [{"step": s, f"{names[0]}/mean": right * (s % 2), f"{names[1]}/mean": form * s / 8} for s in range(1, 9)]
    rows = [row | {"reward_std": 0.1, f"{names[0]}/std": 0.0, f"{names[1]}/std": 0.1} for row in rows]
    run = run_of(tmp_path, "".join(json.dumps(row) + "\n" for row in rows), "log.jsonl")
    assert bool(values([run], "format_rate")) == taken


@pytest.mark.parametrize(("most", "spread", "taken"), [(0.9, 0.0, False), (1.0, 0.0, True), (0.9, 0.3, True)])
def test_a_reward_that_all_responses_get_is_what_one_gets(most, spread, taken, tmp_path):
    """Of shares all responses have 0 or 1."""
    means = [0.2, 0.4, 0.3, most, 0.5, most, 0.4, most]
    rows = [{"step": s, "reward_std": 0.1, "rewards/accuracy/mean": mean} for s, mean in enumerate(means, start=1)]
    rows = [
        row | {"rewards/accuracy/std": spread if mean == most else 0.4} for row, mean in zip(rows, means, strict=True)
    ]
    run = run_of(tmp_path, "".join(json.dumps(row) + "\n" for row in rows), "log.jsonl")
    assert bool(values([run], "pass_at_1")) == taken


def test_names_of_a_loop_of_ones_own(tmp_path):
    names = ("answer_rate", "degenerate_frac", "approx_kl_old", "eval_answer_rate")
    run = run_of(tmp_path, f"step,{','.join(names)}\n" + "".join(f"{s},0.2,0.5,0.01,0.3\n" for s in (1, 2, 3)))
    ours = ("pass_at_1", "zero_signal_fraction", "kl")
    assert [values([run], name)[3] for name in ours] == [0.2, 0.5, 0.01] and values([run], "pass_at_1", "test")[
        3
    ] == 0.3


@pytest.mark.parametrize(("every", "shift", "updates"), [(4, 0, 4), (4, 1, None), (1, 0, None)])
def test_trl_logs_a_reward_where_it_samples_so_that_updates_between_two_are_a_round(every, shift, updates, tmp_path):
    """Not so where rewards come unevenly."""
    sampled = {1 + every * i + shift * (i == 2) for i in range(4)}
    rows = [
        {"step": s, "loss": 0.1, "reward_std": 0.1} | ({"reward": s / 10} if s in sampled else {}) for s in range(1, 17)
    ]
    run = run_of(tmp_path, "".join(json.dumps(row) + "\n" for row in rows), "log.jsonl")
    assert run.design.updates_per_round == updates and run.rounds == 16 // (updates or 1)
    if updates:
        assert values([run], "reward_mean") == {1: 0.1, 2: 0.5, 3: 0.9, 4: 1.3} and "samples" in run.design.assumed[0]


@pytest.mark.parametrize(("first", "tool"), [(0, ""), (1, "trl")])
def test_a_log_that_counts_from_0_is_none_of_trl(first, tool, tmp_path):
    rows = [{"step": first + s, "loss": 0.1, "reward_std": 0.1, "reward": s / 10} for s in range(4)]
    run = run_of(tmp_path, "".join(json.dumps(row) + "\n" for row in rows), "log.jsonl")
    assert run.tool == tool and values([run], "reward_mean") == {1: 0.0, 2: 0.1, 3: 0.2, 4: 0.3}


def test_metrics_below_rl_are_of_training(tmp_path):
    run = run_of(tmp_path, "step,RL/Mean_Reward,grpo/kl\n1,0.25,0.1\n2,0.5,0.2\n3,0.75,0.3\n")
    assert values([run], "reward_mean")[3] == 0.75 and values([run], "kl_ref")[3] == 0.3


def test_accuracy_outranks_a_graded_reward_of_verl(tmp_path):
    """A reward may be below 0, and then it is no share."""
    parts = [f"val-aux/aime/{kind}/{what}@4/mean:{value}" for kind, value in (("reward", -0.5), ("acc", 0.25))
             for what in ("best", "maj")]  # fmt: skip
    run = run_of(tmp_path, "".join(f"step:{s} - {' - '.join(parts)} - actor/lr:0.1\n" for s in (1, 2, 3)), "verl.log")
    assert values([run], "best_at_4", "test") == values([run], "maj_at_4", "test") == dict.fromkeys((1, 2, 3), 0.25)


def test_a_reward_is_never_in_per_cent(tmp_path):
    rows = [{"step": s, "reward_std": 0.1, "rewards/correctness/mean": 2.0 * (s % 2)} for s in range(1, 9)]
    run = run_of(tmp_path, "".join(json.dumps(row) + "\n" for row in rows), "log.jsonl")
    assert not values([run], "pass_at_1") and "exceeds 1" in notes([run])


def test_the_time_in_a_run_s_name_makes_an_export_no_console(tmp_path):
    name = "grpo 2025-01-05 12:30:10 - train/reward"
    rows = "".join(f"{step},0.{step},0.{step}\n" for step in range(1, 9))
    run = run_of(tmp_path, f'"Step","{name}","{name}__MIN"\n' + rows, "export.csv")
    assert run.name.endswith("12:30:10") and len(values([run], "reward_mean")) == 8
