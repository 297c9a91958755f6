"""What a repeat is: configurations, or columns that state design and seed, decide it, and names never do. Numbers in
names are neither steps nor seeds."""

import csv
import json
import pickle

import pandas as pd
import pytest

from rftlab.shared.plumbing.errors import UserError
from rftlab.studies.analysis.imported.groups import group_runs
from rftlab.studies.readers import read_logs
from rftlab.studies.readers.assemble import assemble, describe_unmarked, mark_repeats
from rftlab.studies.readers.run import KnownDesign, RawRun
from tests.support.logs.reading import read, values
from tests.support.machine.here import rftlab

TEST, VALUES = ("test", "pass_at_1"), (0.1, 0.2, 0.4)
CONFIG = """{'actor_rollout_ref': {'actor': {'clip_ratio': 0.2, 'optim': {'lr': 1e-06}, 'ppo_mini_batch_size': 64},
 'model': {'path': 'm'}, 'rollout': {'n': 8, 'temperature': 1.0}}, 'algorithm': {'adv_estimator': 'grpo'},
 'data': {'max_response_length': 256, 'train_batch_size': 64, 'seed': 1}, 'trainer': {'experiment_name': 'a'}}
"""


def table(tmp_path, header: str, rows: list[list], name: str = "runs.csv"):
    path = tmp_path / name
    with path.open("w", newline="") as file:
        csv.writer(file).writerows([header.split(","), *rows])
    return path


def grouped(runs):
    return [(group.label, group.runs) for group in group_runs(runs, TEST)]


@pytest.mark.parametrize(
    "names",
    [("lr 1e-5", "lr 1e-6"), ("grpo-K-4", "grpo-K-8"), ("clip-0.2", "clip-0.28"), ("bs-32", "bs-256"),
     ("temp=0.7", "temp=1.0"), ("step-limit-1024", "step-limit-4096"), ("grpo-seed0", "grpo-seed1"),
     ("projA/grpo", "projB/grpo"), ("x (1)", "x (2)"), ("r1", "r2")],
)  # fmt: skip
def test_names_make_no_repeats_and_labels_differ(names, tmp_path):
    rows = [[name, step, value] for name in names for step, value in enumerate(VALUES, start=1)]
    runs = read_logs([table(tmp_path, "run_name,step,eval_acc", rows)], given=KnownDesign(32, 8))
    found = grouped(runs)
    assert [members for _, members in found] == [(name,) for name in names]
    assert len({label for label, _ in found}) == 2
    assert "--repeats" in describe_unmarked(runs) and names[0] in describe_unmarked(runs)


def test_the_user_may_say_what_repeats(tmp_path):
    rows = [[f"grpo-s{seed}", step, value + seed / 10] for seed in (0, 1) for step, value in enumerate(VALUES)]
    rows += [["other", step, value] for step, value in enumerate(VALUES)]
    path = table(tmp_path, "run_name,step,eval_acc", rows)
    assert len(grouped(read_logs([path]))) == 3
    status, text = rftlab("import", path, "--repeats", "grpo-s*", "--results", tmp_path / "r", "--name", "a")
    assert status == 0 and "stay apart" not in text
    text = rftlab("report", "imported:a", "--results", tmp_path / "r")[1]
    assert "2" in next(line for line in text.splitlines() if line.startswith("?x? grpo"))
    for wrong, said in ((("none*",), "meets 0 runs"), (("grpo-s*", "*"), "each run once")):
        status, text = rftlab("import", path, "--repeats", *wrong, "--results", tmp_path / "r", "--name", "b")
        assert status == 2 and said in text
    with pytest.raises(UserError, match="rollouts differs"):
        one, two = read_logs([path], given=KnownDesign(32, 8))[:1], read_logs([path], given=KnownDesign(32, 4))[1:2]
        mark_repeats([*one, *two], ("grpo*",))


@pytest.mark.parametrize(
    ("old", "new", "groups"),
    [
        ("'seed': 1", "'seed': 2", 1),
        ("'experiment_name': 'a'", "'experiment_name': 'b'", 1),
        ("'clip_ratio': 0.2", "'clip_ratio': 0.28", 2),
        ("'n': 8", "'n': 4", 2),
        ("'path': 'm'", "'path': 'other'", 2),
    ],
)
def test_configurations_decide(old, new, groups, tmp_path):
    lines = "".join(f"step:{s} - val-core/t/acc/mean@1:{v} - critic/score/mean:0.5\n" for s, v in enumerate(VALUES, 1))
    for name, config in (("a-1.log", CONFIG), ("zzz.log", CONFIG.replace(old, new))):
        (tmp_path / name).write_text(config + lines)
    runs = read_logs([tmp_path / "a-1.log", tmp_path / "zzz.log"])
    assert len(grouped(runs)) == groups and bool(describe_unmarked(runs)) == 0


ARGUMENTS = {"num_generations": 8, "per_device_train_batch_size": 8, "generation_batch_size": 64, "seed": 1}
SHAPE = {"model_type": "qwen2", "hidden_size": 896, "num_hidden_layers": 24, "vocab_size": 151936}


def run_of_trl(folder, files: dict, seed: int):
    """A state and arguments as TRL leaves them in a checkpoint, and files of the model beside them or one above."""
    checkpoint = folder / "checkpoint-3"
    checkpoint.mkdir(parents=True)
    records = [{"step": step, "eval_rewards/accuracy/mean": value + seed / 10} for step, value in enumerate(VALUES, 1)]
    (checkpoint / "trainer_state.json").write_text(json.dumps({"log_history": records}))
    (checkpoint / "training_args.bin").write_bytes(pickle.dumps(ARGUMENTS | {"seed": seed, "output_dir": str(folder)}))
    for name, value in files.items():
        (checkpoint / name).write_text(value if isinstance(value, str) else json.dumps(value))
    return folder


def adapter(model: str) -> dict:
    return {"base_model_name_or_path": model, "r": 8}


def card(model: str, data: str) -> str:
    return f"---\nbase_model: {model}\ndatasets: {data}\ntags:\n- grpo\n---\n\n# Model card\n"


@pytest.mark.parametrize(
    ("one", "other", "models", "repeats"),
    [
        ({}, {}, (None, None), True),
        ({"config.json": {"_name_or_path": "m"}}, {"config.json": {"_name_or_path": "m"}}, ("m", "m"), True),
        ({"config.json": {"_name_or_path": "m"}}, {"config.json": {"_name_or_path": "n"}}, ("m", "n"), False),
        ({"config.json": SHAPE}, {"config.json": SHAPE | {"transformers_version": "5"}}, (None, None), True),
        ({"config.json": SHAPE}, {"config.json": SHAPE | {"hidden_size": 1536}}, (None, None), False),
        ({"adapter_config.json": adapter("m")}, {"adapter_config.json": adapter("m")}, ("m", "m"), True),
        ({"adapter_config.json": adapter("m")}, {"adapter_config.json": adapter("n")}, ("m", "n"), False),
        ({"README.md": card("m", "d")}, {"README.md": card("m", "d"), "config.json": SHAPE}, ("m", "m"), True),
        ({"README.md": card("m", "d")}, {"README.md": card("n", "d")}, ("m", "n"), False),
        ({"README.md": card("m", "d")}, {"README.md": card("m", "e")}, ("m", "m"), False),
        ({"../README.md": card("m", " [d]")}, {"../README.md": card("m", "\n- e\n- d")}, ("m", "m"), False),
        ({"config.json": "[1"}, {"adapter_config.json": "3", "README.md": "---\n"}, (None, None), True),
    ],
)
def test_model_and_data_set_of_trl_decide_wherever_they_are_named(one, other, models, repeats, tmp_path):
    """Its arguments hold neither: only seeds differ there."""
    runs = read_logs([run_of_trl(tmp_path / "a", one, 1), run_of_trl(tmp_path / "b", other, 2)])
    assert tuple(run.design.model for run in runs) == models and all(run.repeats for run in runs)
    assert len(grouped(runs)) == (1 if repeats else 2)


@pytest.mark.parametrize(
    ("arguments", "rollouts"), [(None, None), ({"adam_beta1": 0.9}, None), (ARGUMENTS | {"adam_beta1": 0.9}, 8)]
)
def test_a_state_gives_the_rank_of_adapters_and_no_defaults_of_grpo_to_other_trainers(arguments, rollouts, tmp_path):
    run_of_trl(tmp_path, {"adapter_config.json": adapter("m")}, 1)
    written = tmp_path / "checkpoint-3" / "training_args.bin"
    written.unlink() if arguments is None else written.write_bytes(pickle.dumps(arguments))
    (run,) = read_logs([tmp_path])
    design = run.design
    assert (design.model, design.adapter_rank, design.rollouts, design.advantage is None) == (
        *("m", 8, rollouts),
        rollouts is None,
    )


@pytest.mark.parametrize(
    ("path", "repeats"),
    [("wandb.name", True), ("orchestrator.wandb.name", True), ("name", True), ("model.name", False),
     ("orchestrator.environment.id", False), ("data.name", False), ("optimizer.name", False),
     ("orchestrator.data.seed", True)],
)  # fmt: skip
@pytest.mark.parametrize("dotted", [False, True])
def test_a_name_below_a_part_that_is_no_run_is_one_of_a_model_or_data_set(path, repeats, dotted):
    marks = set()
    for name in ("a", "b"):
        settings: dict | str = name
        for part in [path] if dotted else path.split(".")[::-1]:
            settings = {part: settings}
        config = {"num_generations": 8, "generation_batch_size": 64, **settings}
        run = RawRun("r", "JSON lines", tool="trl", config=config)
        for step, value in enumerate(VALUES, 1):
            run.add("reward", step, value, step)
        marks.add(assemble(run, (), KnownDesign()).repeats)
    assert len(marks) == (1 if repeats else 2) and "" not in marks


def test_one_configuration_for_all_does_not_say_that_runs_repeat(tmp_path):
    (tmp_path / "c.json").write_text(json.dumps({"per_device_train_batch_size": 64, "num_generations": 8}))
    rows = [[name, step, value] for name in ("lr-1", "lr-2") for step, value in enumerate(VALUES)]
    path = table(tmp_path, "run_name,step,eval_acc", rows)
    assert len(grouped(read_logs([path], config=tmp_path / "c.json", processes=1))) == 2


@pytest.mark.parametrize(
    ("second", "repeats"),
    [
        ((2, 8, 1e-6, "grpo"), True),
        ((2, 4, 1e-6, "grpo"), False),
        ((2, 8, 1e-5, "grpo"), False),
        ((2, 8, 1e-6, "rloo"), False),
        ((1, 8, 1e-6, "grpo"), False),  # of one seed, so that something else differs
    ],
)
def test_columns_decide_where_they_state_design_and_seed(second, repeats, tmp_path):
    cells = (("a", 1, 8, 1e-6, "grpo"), ("b", *second))
    rows = [[name, seed, 32, k, lr, kind, s, v] for name, seed, k, lr, kind in cells for s, v in enumerate(VALUES, 1)]
    header = "run_name,seed,num_prompts,group_size,lr,estimator,step,eval_acc"
    for path in in_every_ending(table(tmp_path, header, rows)):
        assert len(grouped(read_logs([path]))) == (1 if repeats else 2), path.name


def in_every_ending(path):
    """The table as CSV, Parquet and JSON lines."""
    frame = pd.read_csv(path)
    frame.to_parquet(path.with_suffix(".parquet"))
    path.with_suffix(".jsonl").write_text(frame.to_json(orient="records", lines=True))
    return [path, path.with_suffix(".jsonl"), path.with_suffix(".parquet")]


@pytest.mark.parametrize("ending", [0, 1, 2], ids=["csv", "jsonl", "parquet"])
@pytest.mark.parametrize(
    "column", ["run_id", "seed", "config/seed", "config.seed", "wandb_run_id", "data_seed", "trial"]
)
@pytest.mark.parametrize("cells", [("a1b2", "c3d4"), (1, 2)])
def test_a_column_tells_runs_of_one_name_apart(ending, column, cells, tmp_path):
    rows = [["grpo", cell, s, v] for s in (1, 2, 3) for cell, v in zip(cells, (0.0, 1.0), strict=True)]
    path = in_every_ending(table(tmp_path, f"run_name,{column},step,reward", rows))[ending]
    first, second = read_logs([path])
    last = column.replace(".", "/").rpartition("/")[2]
    assert [first.name, second.name] == [f"grpo {last}={cell}" for cell in cells]
    assert values([first], "reward_mean") == {1: 0, 2: 0, 3: 0}
    assert values([second], "reward_mean") == {1: 1, 2: 1, 3: 1}


def test_a_long_export_tells_runs_of_one_name_apart_and_texts_of_rows_do_not(tmp_path):
    rows = [["grpo", i, s, "train/reward", i - 1] for s in (1, 2, 3) for i in (1, 2)]
    first, second = read_logs([table(tmp_path, "run_name,run_id,step,metric,value", rows)])
    assert values([second], "reward_mean") == {1: 1, 2: 1, 3: 1} and first.name == "grpo run_id=1"
    rows = [["grpo", f"id{s // 4}", s, f"12:0{s}:{i}", 0.1 * s + i / 100] for s in range(1, 8) for i in (0, 1)]
    (run,) = read_logs([table(tmp_path, "run_name,run_id,step,time,reward", rows)])
    assert run.name == "grpo" and values([run], "reward_mean")[5] == pytest.approx(0.505)


@pytest.mark.parametrize(
    ("column", "texts"), [("seed", "xy"), ("seed", "34"), ("model", "xy"), ("variant", "xy"), ("benchmark", "xy")]
)
def test_other_texts_that_tell_rows_of_a_step_apart_are_refused(column, texts, tmp_path):
    path = table(tmp_path, f"{column},step,acc", [[text, s, 0.5] for s in (1, 2, 3) for text in texts])
    with pytest.raises(UserError, match=f"--columns run={column}"):
        read_logs([path])
    assert len(read_logs([path], columns={"run": column})) == 2


@pytest.mark.parametrize(
    "names", ["aime24 aime25", "seed0 seed1", "pass@1 pass@8", "0 1", "epoch1 epoch2", "amc-23 k-4"]
)
def test_numbers_in_names_are_no_steps(names, tmp_path):
    with pytest.raises(UserError, match="holds no steps"):
        read(tmp_path, json.dumps({name: {"acc": 0.5} for name in names.split()}), "d.json")


@pytest.mark.parametrize("front", ["checkpoint-", "global_step_", "ckpt", "iter_000", "model/step=", "Qwen2.5-round "])
def test_names_of_checkpoints_are_steps(front, tmp_path):
    text = json.dumps({f"{front}{step}": {"aime24": {"acc": step / 100}} for step in (10, 20)})
    assert values(read(tmp_path, text, "d.json"), "pass_at_1", "test") == {10: 0.1, 20: 0.2}


@pytest.mark.parametrize("orient", ["index", "columns", "split", "table", "records"])
@pytest.mark.parametrize("index", [None, [3, 1, 2], [10, 20, 30]])
def test_a_frame_is_read_in_any_orientation_and_its_index_is_no_round(orient, index, tmp_path):
    frame = pd.DataFrame({"step": [10, 20, 30], "reward": [0.125, 0.25, 0.5]}, index=index)
    frame.to_json(tmp_path / "a.json", orient=orient)
    (run,) = read_logs([tmp_path / "a.json"])
    assert values([run], "reward_mean") == {10: 0.125, 20: 0.25, 30: 0.5}
    if orient in ("index", "columns", "split"):
        frame.set_index("step").to_json(tmp_path / "b.json", orient=orient)
        with pytest.raises(UserError, match="holds no steps"):
            read_logs([tmp_path / "b.json"])


@pytest.mark.parametrize("quoted", [("0", "0.5", "1"), ("0", "1", "1"), ("-1", "+2", "1e1")])
def test_whole_numbers_in_quotes_are_numbers(quoted, tmp_path):
    records = [{"step": step, "reward": text} for step, text in enumerate(quoted, start=1)]
    truth = {step: float(text) for step, text in enumerate(quoted, start=1)}
    lines = "".join(json.dumps(record) + "\n" for record in records)
    state = json.dumps({"log_history": records})
    for name, text in (("trainer_state.json", state), ("a.jsonl", lines), ("b.json", json.dumps(records))):
        assert values(read(tmp_path, text, name), "reward_mean") == truth


def test_exports_of_two_folders_are_no_run_and_those_of_one_say_so(tmp_path):
    def export(folder, metric, steps):
        (tmp_path / folder).mkdir(exist_ok=True)
        rows = [[step, 0.1, 0.1, 0.1] for step in steps]
        header = f"Step,grpo - {metric},grpo - {metric}__MIN,grpo - {metric}__MAX"
        return table(tmp_path / folder, header, rows, f"{metric.replace('/', '-')}.csv")

    one, other = export("a", "train/reward", (1, 2, 3)), export("b", "eval/gsm8k/acc", (1, 2, 3))
    assert [run.name for run in read_logs([one, other])] == ["grpo", "grpo (2)"]
    far, near = export("a", "eval/gsm8k/acc", (100, 200)), export("a", "train/entropy", (2, 3))
    assert [run.name for run in read_logs([one, far])] == ["grpo", "grpo (2)"]
    (run,) = read_logs([one, near])
    assert any("joined by its name" in note for note in run.notes)


@pytest.mark.parametrize(
    ("header", "kept"),
    [("step,correct,total", "correct"), ("step,acc,n_test", "acc"), ("step,num_correct", "num_correct")],
)
def test_counts_are_no_per_cent(header, kept, tmp_path):
    rows = [[step, 12 * step, 50][: len(header.split(","))] for step in (1, 2, 3)]
    (run,) = read_logs([table(tmp_path, header, rows)])
    assert not any(piece.metric == "pass_at_1" for piece in run.pieces)
    (piece,) = (piece for piece in run.pieces if (piece.split, piece.metric) == ("", kept))
    assert (piece.rounds.tolist(), piece.values.tolist()) == ([1, 2, 3], [12, 24, 36])


@pytest.mark.parametrize("between", ["", "(TaskRunner pid=7) ", " - "])
def test_step_lines_that_run_together_invent_no_metric(between, tmp_path):
    lines = [f"step:{s} - critic/score/mean:0.{s} - actor/lr:1e-06 - perf/mfu:0.1" for s in (1, 2, 3, 4)]
    (run,) = read(tmp_path, "\n".join([lines[0], f"{lines[1]}{between}{lines[2]}", lines[3]]) + "\n", "v.log")
    found = {piece.source: dict(zip(piece.rounds.tolist(), piece.values.tolist(), strict=True)) for piece in run.pieces}
    assert set(found) == {"critic/score/mean", "actor/lr", "perf/mfu"}
    assert found["critic/score/mean"] == {1: 0.1, 2: 0.2, 3: 0.3, 4: 0.4} and found["perf/mfu"].keys() >= {1, 3, 4}
    assert any("run together" in note for note in run.notes)
