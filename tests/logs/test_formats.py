"""Formats: recognised by content, read as what they say; those of packages that are not installed are skipped."""

import json
from dataclasses import replace

import pandas as pd
import pytest

from rftlab import Curve, UserError, start_at
from rftlab.llm.config import model_config
from rftlab.studies.analysis.imported.figures import logged, training_figure
from rftlab.studies.readers import read_logs
from rftlab.studies.readers.names import is_metric
from tests.support.logs.formats import LOGS, runs_folder, said, verl_log, wide_csv, wrong
from tests.support.logs.reading import read, run_of, values

FOLDER = runs_folder()
public = pytest.mark.skipif(FOLDER is None, reason="the public logs are not beside the project (../shared/data/runs)")


@pytest.mark.parametrize("kind", LOGS)
def test_a_format_is_told_by_content_not_by_name(kind, tmp_path):
    log = LOGS[kind](0)
    (run,) = read(tmp_path, log.text, "a-file")
    assert wrong(said([run]), log.truth) == {} and set(log.truth) <= set(said([run]))


def test_parts_of_a_run_in_two_exports_are_one_run_and_so_is_a_file_that_is_named_twice(tmp_path):
    for name in ("accuracy", "format"):
        (tmp_path / f"{name}.csv").write_text(wide_csv().text.replace("rewards/accuracy_reward/mean", name))
    (run,) = read_logs([tmp_path / "accuracy.csv", tmp_path / "format.csv"])
    assert {"pass_at_1", "format_rate"} == {metric for _, _, metric in said([run])} and len(run.sources) == 2
    (tmp_path / "v.log").write_text(verl_log().text)
    assert len(read_logs([tmp_path / "v.log"] * 2)) == 1


def test_each_of_several_rewards_is_a_curve_with_its_name_and_a_panel_of_the_report(tmp_path):
    text = "step,train/reward,train/rewards/length_penalty/mean,eval/rewards/length_penalty/mean,other\n"
    rows = [f"{step},{0.1 * step:.1f},{-0.3 + 0.1 * step:.1f},{-0.2 * step:.1f},{step}\n" for step in range(1, 4)]
    (run,) = read(tmp_path, text + "".join(rows), "several.csv")
    numbers = said([run])
    assert numbers[3, "train", "reward/length_penalty"] == 0.0 and numbers[3, "test", "reward/length_penalty"] == -0.6
    assert logged([run]) == ["reward_mean", "reward/length_penalty"]
    chart, _ = training_figure([run])
    assert [panel.title for panel in chart.panels] == ["mean reward", "reward length_penalty"]
    assert is_metric("train.reward/length_penalty") and not is_metric("rewards")


def test_columns_can_be_named(tmp_path):
    text = "k,good,points\n" + "".join(f"{i},{0.1 + i / 100},{i / 10}\n" for i in range(1, 6))
    run = run_of(tmp_path, text, columns={"step": "k", "pass_at_1": "good", "train.reward_mean": "points"})
    assert said([run])[3, "test", "pass_at_1"] == pytest.approx(0.13)
    assert said([run])[3, "train", "reward_mean"] == pytest.approx(0.3)
    with pytest.raises(UserError, match="no column 'iter'"):
        read(tmp_path, text, columns={"step": "iter"})


def test_rewards_for_the_format_are_so_called_with_and_without_their_mean(tmp_path):
    for name in ("rewards/r2_format", "rewards/r2_format/mean"):
        run = run_of(tmp_path, f"step,{name}\n1,0.25\n2,0.5\n")
        assert values([run], "format_rate") == {1: 0.25, 2: 0.5}


def test_what_is_missing_stays_missing(tmp_path):
    run = run_of(tmp_path, "step,eval_acc\n10,0.5\n20,0.6\n")
    assert said([run]) == {(10, "test", "pass_at_1"): 0.5, (20, "test", "pass_at_1"): 0.6}
    assert "prompts" in run.design.unknown and len(run.design.unknown) == 10


def test_numbers_of_numpy_and_all_digits_are_read_and_verls_file_logger_too(tmp_path):
    line = "step:{0} - critic/score/mean:np.float64(0.{0}25) - actor/lr:1e-06 - timing_s/gen:{0}.123456789\n"
    run = run_of(tmp_path, line.format(1) + line.format(2), "n.log")
    assert values([run], "reward_mean")[2] == 0.225 and run.design.learning_rate == 1e-6
    early = line.replace("lr:1e-06", "lr(1e-4):0.010")  # of January 2025
    run = run_of(tmp_path, early.format(1) + early.format(2), "early.log")
    assert values([run], "learning_rate")[2] == pytest.approx(1e-6) and run.design.learning_rate == 1e-6
    rows = ({"critic/score/mean": 0.5, "training/global_step": s, "val-core/a/acc/mean@8": 0.1 * s} for s in (1, 2))
    text = "".join(json.dumps({"step": s, "data": row}) + "\n" for s, row in enumerate(rows, 1))
    run = run_of(tmp_path, text, "verl.jsonl")
    assert run.tool == "verl" and said([run])[2, "test", "pass_at_1"] == 0.2


@public
def test_the_samples_are_read():
    found = {path.name: read_logs([path]) for path in sorted((FOLDER / "samples").glob("*.synthetic.*"))}
    assert {name: len(runs) for name, runs in found.items() if len(runs) > 1} == {
        "long_run_metric_step_value.synthetic.csv": 2,
        "wandb_wide_acc.synthetic.csv": 3,
        "wandb_wide_length.synthetic.csv": 3,
    }
    tidy = found["tidy_step_metrics.synthetic.csv"]
    ends = values(tidy, "pass_at_1", "test")
    assert len([key for key in said(tidy) if key[1] == "test"]) == len(ends) == 4 and [*ends] == [25, 50, 75, 100]
    assert (ends[25], ends[100]) == pytest.approx((0.182, 0.37))
    (old,), (new,) = found["verl_console_old.synthetic.log"], found["verl_console_new.synthetic.log"]
    ends = values([old], "pass_at_1", "test")
    assert (ends[0], ends[60], old.rounds, new.rounds, old.design.advantage) == (0.0125, 0.499, 60, 50, "gae")
    assert set(new.curves.loc[new.curves["metric"] == "pass_at_1", "task"]) == {"", "gsm8k", "MATH-lighteval"}
    assert (new.design.prompts, new.design.rollouts, new.design.updates_per_round) == (64, 5, 4)


@pytest.mark.parametrize(
    ("text", "truth"),
    [
        ('[{"step": 1, "reward": 0.25}, {"step": 2, "reward": 0.5}]', {1: 0.25, 2: 0.5}),
        ('{"lr": 1, "history": [{"step": 1, "reward": 0.25}, {"step": 2, "reward": 0.5}]}', {1: 0.25, 2: 0.5}),
        ('[{"step": 1, "reward": 0.25}, {"step": 2, "reward": ' + "9" * 5000 + "}]", {1: 0.25}),
        ('{"step": [1, 2], "reward": [0.25, null], "tags": ["a"]}', {1: 0.25}),
        ('{"step_10": {"eval/reward": [0, 0.5]}, "step_5": {"eval/reward": 0.125}}', {5: 0.125, 10: 0.25}),
    ],
)
def test_a_json_document_is_read_as_records_columns_or_checkpoints(text, truth, tmp_path):
    numbers = said(read(tmp_path, text, "doc"))
    assert {key[0]: value for key, value in numbers.items() if key[2] == "reward_mean"} == truth


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ('{"checkpoint-1": {"acc": 0.5}, "checkpoint-1": {"acc": 0.6}}', "'checkpoint-1' is there twice"),
        ('{"a-step-1": {"acc": 0.5}, "b-step-2": {"acc": 0.6}}', "checkpoints of one run a file"),
        ('{"checkpoint-1": {"acc": 0.5}, "checkpoint-01": {"acc": 0.6}}', "a checkpoint twice"),
        ('{"name": "x", "value": 3}', "holds no steps"),
        ('[{"reward": 0.5}]', "no record has a step"),
        ("[{}]", "no record has a step"),
        ('{"a": ' * 100_000, "nested too deeply|no JSON that can be read"),
        ('[{"step": 1, "reward": 0.5}', "no JSON that can be read"),
    ],
)
def test_a_json_document_that_says_nothing_is_refused(text, said, tmp_path):
    with pytest.raises(UserError, match=said):
        read(tmp_path, text, "doc")


@public
@pytest.mark.parametrize("part", ["resp512", "resp256"])
def test_verls_console_logs_give_the_published_values(part):
    (run,) = read_logs([*(FOLDER / "raw").glob(f"*{part}*.log")])
    truth = pd.read_csv(FOLDER / "curves.csv").query(f"run_id == 'verl/qwen2.5-0.5b-ppo-{part}'")
    both = truth.merge(run.curves, on=["round", "split", "metric"], how="left", suffixes=("", "_ours"))
    assert len(truth) == len(both) == 2655
    # published with six digits
    assert [float(f"{value:.6g}") for value in both["value_ours"]] == both["value"].tolist()
    assert both["source_step_ours"].astype(float).fillna(-1).tolist() == both["source_step"].fillna(-1).tolist()
    assert set(both.loc[both["split"] == "test", "task_ours"]) == {"gsm8k"}
    known = run.design
    assert (known.prompts, known.rollouts, known.updates_per_round) == (256, 1, 4)
    assert (known.learning_rate, known.advantage) == (1e-6, "gae")


def test_a_folder_of_ours_is_read_in_its_own_rounds(tmp_path):
    start = start_at("tiny-mix97", "llm")
    ours = replace(start, design=replace(start.design, batch_size=16, rollouts=4, minibatches=2))
    columns = {name: [0, 50, 100] if name == "round" else [0.1, 0.2, 0.3] for name in Curve._fields}
    metrics = {"seed": [0] * 3, "round": [0, 50, 100], "test_flexible": [0.2, 0.3, 0.4]}
    for name, table in (("curve", columns), ("metrics", metrics)):
        pd.DataFrame(table).to_parquet(tmp_path / f"{name}.parquet")
    (tmp_path / "config.json").write_text(json.dumps(model_config(ours)))
    (run,) = read_logs([tmp_path])
    assert said([run])[100, "test", "pass_at_1"] == 0.3 and said([run])[50, "train", "reward_mean"] == 0.2
    assert {"train_pass_at_1", "test_flexible"} <= set(run.curves["metric"]) and len(run.sources) == 3
    assert (run.design.prompts, run.design.rollouts, run.design.updates_per_round) == (16, 4, 2)
    assert run.format == "rftlab train"
