"""Formats: recognised by content, read as what they say; those of packages that are not installed are skipped."""

import json
from pathlib import Path

import pandas as pd
import pytest

from rftlab.shared.plumbing.errors import UserError
from rftlab.studies.analysis.imported.figures import logged, training_figure
from rftlab.studies.readers import read_logs
from rftlab.studies.readers.names import is_metric
from tests.support.logs.formats import LOGS, runs_folder, said, verl_log, wide_csv, wrong

FOLDER = runs_folder()
public = pytest.mark.skipif(FOLDER is None, reason="the public logs are not beside the project (../shared/data/runs)")


def written(folder: Path, name: str, text: str) -> Path:
    (folder / name).write_text(text)
    return folder / name


@pytest.mark.parametrize("kind", LOGS)
def test_a_format_is_told_by_content_not_by_name(kind, tmp_path):
    log = LOGS[kind](0)
    (run,) = read_logs([written(tmp_path, "a-file", log.text)])
    assert wrong(said([run]), log.truth) == {} and set(log.truth) <= set(said([run]))


def test_a_table_in_parquet_says_what_it_says_in_csv(tmp_path):
    log = LOGS["tidy"](0)
    frame = pd.read_csv(written(tmp_path, "t.csv", log.text))
    frame.to_parquet(tmp_path / "t.parquet")
    assert said(read_logs([tmp_path / "t.parquet"])) == said(read_logs([tmp_path / "t.csv"]))


def test_parts_of_a_run_in_two_exports_are_one_run(tmp_path):
    log = wide_csv()
    first, second = (
        written(tmp_path, f"{i}.csv", log.text.replace("rewards/accuracy_reward/mean", name))
        for i, name in enumerate(("accuracy", "format"))
    )
    (run,) = read_logs([first, second])
    assert {"pass_at_1", "format_rate"} == {metric for _, _, metric in said([run])} and len(run.sources) == 2


def test_each_of_several_rewards_is_a_curve_with_its_name_and_a_panel_of_the_report(tmp_path):
    text = "step,train/reward,train/rewards/length_penalty/mean,eval/rewards/length_penalty/mean,other\n"
    rows = [f"{step},{0.1 * step:.1f},{-0.3 + 0.1 * step:.1f},{-0.2 * step:.1f},{step}\n" for step in range(1, 4)]
    (run,) = read_logs([written(tmp_path, "several.csv", text + "".join(rows))])
    numbers = said([run])
    assert numbers[3, "train", "reward/length_penalty"] == 0.0 and numbers[3, "test", "reward/length_penalty"] == -0.6
    assert logged([run]) == ["reward_mean", "reward/length_penalty"]
    chart, _ = training_figure([run])
    assert [panel.title for panel in chart.panels] == ["mean reward", "reward length_penalty"]
    assert is_metric("train.reward/length_penalty") and not is_metric("rewards")


def test_a_file_that_is_named_twice_is_one_run(tmp_path):
    path = written(tmp_path, "v.log", verl_log().text)
    assert len(read_logs([path, path])) == 1


def test_runs_of_a_column_are_told_apart(tmp_path):
    text = "run,step,eval_acc\n" + "".join(
        f"{run},{step},{0.1 * run + 0.01 * step:.2f}\n" for run in (1, 2) for step in range(5)
    )
    runs = read_logs([written(tmp_path, "two.csv", text)])
    assert [run.name for run in runs] == ["1", "2"]
    assert [said([run])[4, "test", "pass_at_1"] for run in runs] == pytest.approx([0.14, 0.24])


def test_columns_can_be_named(tmp_path):
    path = written(
        tmp_path, "mine.csv", "k,good,points\n" + "".join(f"{i},{0.1 + i / 100},{i / 10}\n" for i in range(1, 6))
    )
    (run,) = read_logs([path], columns={"step": "k", "pass_at_1": "good", "train.reward_mean": "points"})
    assert said([run])[3, "test", "pass_at_1"] == pytest.approx(0.13)
    assert said([run])[3, "train", "reward_mean"] == pytest.approx(0.3)
    with pytest.raises(UserError, match="no column 'iter'"):
        read_logs([path], columns={"step": "iter"})


def test_what_is_missing_stays_missing(tmp_path):
    only_validation = "step,eval_acc\n10,0.5\n20,0.6\n"
    (run,) = read_logs([written(tmp_path, "v.csv", only_validation)])
    assert said([run]) == {(10, "test", "pass_at_1"): 0.5, (20, "test", "pass_at_1"): 0.6}
    assert "prompts" in run.design.unknown and len(run.design.unknown) == 10


def test_numbers_of_numpy_and_all_digits_are_read(tmp_path):
    lines = [
        f"step:{s} - critic/score/mean:np.float64(0.{s}25) - actor/lr:1e-06 - timing_s/gen:{s}.123456789\n"
        for s in (1, 2)
    ]
    (run,) = read_logs([written(tmp_path, "n.log", "".join(lines))])
    assert said([run])[2, "train", "reward_mean"] == 0.225 and run.design.learning_rate == 1e-6


@public
def test_the_samples_are_read():
    found = {path.name: read_logs([path]) for path in sorted((FOLDER / "samples").glob("*.synthetic.*"))}
    assert {name: len(runs) for name, runs in found.items() if len(runs) > 1} == {
        "long_run_metric_step_value.synthetic.csv": 2,
        "wandb_wide_acc.synthetic.csv": 3,
        "wandb_wide_length.synthetic.csv": 3,
    }
    tidy = said(found["tidy_step_metrics.synthetic.csv"])
    assert {key: value for key, value in tidy.items() if key[1] == "test"} == pytest.approx(
        {
            (25, "test", "pass_at_1"): 0.182,
            (50, "test", "pass_at_1"): tidy[50, "test", "pass_at_1"],
            (75, "test", "pass_at_1"): tidy[75, "test", "pass_at_1"],
            (100, "test", "pass_at_1"): 0.37,
        }
    )
    (old,), (new,) = found["verl_console_old.synthetic.log"], found["verl_console_new.synthetic.log"]
    assert (said([old])[0, "test", "pass_at_1"], said([old])[60, "test", "pass_at_1"], old.rounds) == (
        0.0125,
        0.499,
        60,
    )
    assert set(new.curves.loc[new.curves["metric"] == "pass_at_1", "task"]) == {"", "gsm8k", "MATH-lighteval"}
    assert new.rounds == 50
    assert (new.design.prompts, new.design.rollouts, new.design.updates_per_round, old.design.advantage) == (
        64,
        5,
        4,
        "gae",
    )


@public
def test_evaluations_by_checkpoint_give_the_published_values():
    """Means of five evaluations each, as they were tidied by hand."""
    (run,) = read_logs([FOLDER / "samples" / "pods_results.excerpt.json"])
    truth = pd.read_csv(FOLDER / "curves.csv").query("run_id == 'pods/gsm8k-n64-m16/r01'")
    both = run.curves[run.curves["split"] == "test"].merge(truth, on=["round", "task", "metric"])
    assert len(both) == 27 and set(both["metric"]) == {"pass_at_1", "format_rate", "response_length"}
    assert [float(f"{value:.6g}") for value in both["value_x"]] == both["value_y"].tolist()
    assert any("lists of 5 numbers are repeats" in note for note in run.notes)


@pytest.mark.parametrize(
    ("text", "truth"),
    [
        ('[{"step": 1, "reward": 0.25}, {"step": 2, "reward": 0.5}]', {1: 0.25, 2: 0.5}),
        ('{"lr": 1, "history": [{"step": 1, "reward": 0.25}, {"step": 2, "reward": 0.5}]}', {1: 0.25, 2: 0.5}),
        ('[{"step": 1, "reward": 0.25}, {"step": 2, "reward": ' + "9" * 5000 + "}]", {1: 0.25}),
        ('{"step": [1, 2], "reward": [0.25, null], "tags": ["a"]}', {1: 0.25}),
        (
            '{"global_step_10": {"eval/reward": [0, 0.5]}, "global_step_5": {"eval/reward": 0.125}}',
            {5: 0.125, 10: 0.25},
        ),
    ],
)
def test_a_json_document_is_read_as_records_columns_or_checkpoints(text, truth, tmp_path):
    (run,) = read_logs([written(tmp_path, "doc", text)])
    assert {key[0]: value for key, value in said([run]).items() if key[2] == "reward_mean"} == truth


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
        read_logs([written(tmp_path, "doc", text)])


@public
@pytest.mark.parametrize(
    ("part", "run_id"), [("resp512", "verl/qwen2.5-0.5b-ppo-resp512"), ("resp256", "verl/qwen2.5-0.5b-ppo-resp256")]
)
def test_verls_console_logs_give_the_published_values(part, run_id):
    (path,) = (FOLDER / "raw").glob(f"*{part}*.log")
    (run,) = read_logs([path])
    truth = pd.read_csv(FOLDER / "curves.csv")
    truth = truth[truth["run_id"] == run_id]
    both = truth.merge(run.curves, on=["round", "split", "metric"], how="left", suffixes=("", "_ours"))
    assert len(truth) == len(both) == 2655
    # published with six digits
    assert [float(f"{value:.6g}") for value in both["value_ours"]] == both["value"].tolist()
    assert both["source_step_ours"].astype(float).fillna(-1).tolist() == both["source_step"].fillna(-1).tolist()
    assert set(both.loc[both["split"] == "test", "task_ours"]) == {"gsm8k"}
    known = (
        run.design.prompts,
        run.design.rollouts,
        run.design.updates_per_round,
        run.design.learning_rate,
        run.design.advantage,
    )
    assert known == (256, 1, 4, 1e-6, "gae")


def test_a_folder_of_ours_is_read_in_its_own_rounds(tmp_path):
    from dataclasses import replace

    from rftlab.llm.config import model_config
    from rftlab.shared.curve import Curve
    from rftlab.studies.data.paper.pairs import start_at

    start = start_at("tiny-mix97", "llm")
    run = replace(start, design=replace(start.design, batch_size=16, rollouts=4, minibatches=2))
    columns = {name: [0, 50, 100] if name == "round" else [0.1, 0.2, 0.3] for name in Curve._fields}
    pd.DataFrame(columns).to_parquet(tmp_path / "curve.parquet")
    pd.DataFrame({"seed": [0] * 3, "round": [0, 50, 100], "test_flexible": [0.2, 0.3, 0.4]}).to_parquet(
        tmp_path / "metrics.parquet"
    )
    (tmp_path / "config.json").write_text(json.dumps(model_config(run)))
    (found,) = read_logs([tmp_path])
    assert said([found])[100, "test", "pass_at_1"] == 0.3 and said([found])[50, "train", "reward_mean"] == 0.2
    assert {"train_pass_at_1", "test_flexible"} <= set(found.curves["metric"]) and len(found.sources) == 3
    assert (found.design.prompts, found.design.rollouts, found.design.updates_per_round, found.format) == (
        16,
        4,
        2,
        "rftlab train",
    )


def test_verls_file_logger_is_json_lines(tmp_path):
    lines = [
        json.dumps(
            {"step": s, "data": {"critic/score/mean": 0.5, "training/global_step": s, "val-core/a/acc/mean@8": 0.1 * s}}
        )
        for s in (1, 2)
    ]
    (run,) = read_logs([written(tmp_path, "verl.jsonl", "\n".join(lines) + "\n")])
    assert run.tool == "verl" and said([run])[2, "test", "pass_at_1"] == 0.2
