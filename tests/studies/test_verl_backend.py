"""Cells of a study as folders for verl: what they say, that writing them is safe, and that their logs come back.

tests/adapters/test_verl_study.py has verl itself read them.
"""

import json
import os
import subprocess
from dataclasses import replace
from pprint import pformat

import pyarrow.parquet as parquet
import pytest

from rftlab import Design, Sampling, UserError, preset
from rftlab.llm.config import LLMRun, LoRA, model_config
from rftlab.llm.random import subset
from rftlab.llm.tasks.load import load_task
from rftlab.shared.config.surrogate import Sapo
from rftlab.studies.analysis.imported.groups import source_groups
from rftlab.studies.analysis.source import free_source
from rftlab.studies.cli.commands import run as command
from rftlab.studies.data.paper.experiments import EXPERIMENTS
from rftlab.studies.data.paper.pairs import pair, start_at
from rftlab.studies.data.runs.points import RunSpec, study_points
from rftlab.studies.integrations.cluster import Cluster
from rftlab.studies.integrations.verl_study import files as verl_files
from rftlab.studies.integrations.verl_study.files import describe_design as written_design
from rftlab.studies.integrations.verl_study.files import point_files, write_pair, yaml_text
from rftlab.studies.integrations.verl_study.reward import compute_score
from rftlab.studies.integrations.verl_study.settings import refused, verl_config
from rftlab.studies.readers import read_logs
from rftlab.studies.readers.designs import read_design
from rftlab.studies.readers.designs.ours import known_design
from rftlab.studies.readers.store import write_collection

PAIR, CLUSTER = "smollm2-words", Cluster(model="HuggingFaceTB/SmolLM2-135M-Instruct")


def points_of(name: str, cluster: Cluster) -> list[RunSpec]:
    """All cells of a pair, as they are for a cluster."""
    points = study_points(list(EXPERIMENTS.values()), "llm", [name], 1, None)
    return [replace(point, run=cluster.changed(point.llm_run)) for point in points]


ALL = points_of(PAIR, CLUSTER)
KEPT = [point for point in ALL if not refused(point.llm_run, CLUSTER)]
SPLIT = next(point for point in KEPT if point.cell == "32x1+7-paper_text")


def run_with(**design) -> LLMRun:
    start = CLUSTER.changed(start_at(PAIR, "llm"))
    estimator = preset(design.pop("card", "paper_text"))
    own = Design(**{"batch_size": 32, "rollouts": 8, "estimator": estimator, "rounds": 20, "eval_every": 5} | design)
    return replace(start, design=own)


def facts(known):
    """What a design says, but for the precision of weights and for adapters: a configuration of verl rarely states
    them, and their defaults are not assumed."""
    return replace(known, assumed=(), precision=None, adapter_rank=known.adapter_rank or None)


@pytest.mark.parametrize(
    "run",
    [
        *(point.llm_run for point in KEPT), run_with(minibatches=4, epochs=2), run_with(card="gspo"),
        run_with(card="paper_code"), replace(run_with(card="rloo"), temperature=0.7, lora=LoRA(8)),
    ],
    ids=lambda run: RunSpec(PAIR, run).cell,
)  # fmt: skip
def test_verls_settings_say_the_same_design(run):
    settings = verl_config(run, "x", CLUSTER)
    design, notes = read_design(settings, "", None)
    mine, _ = read_design(model_config(run), "rftlab", None)
    assert facts(design) == facts(mine) and not design.assumed and not design.unknown
    assert [("support" in note) for note in notes] == [True] * (run.design.support_rollouts > 0)
    known = known_design(run.design, pair(PAIR).model)  # by what `rftlab compare` calls equal
    names = ("prompts", "rollouts", "updates_per_round", "advantage")
    assert all(getattr(design, name) == getattr(known, name) for name in names)


@pytest.mark.parametrize(
    ("place", "value"),
    [
        ("data.train_batch_size", 64), ("actor_rollout_ref.rollout.n", 9), ("algorithm.rftlab.support", 6),
        ("actor_rollout_ref.actor.ppo_mini_batch_size", 16), ("actor_rollout_ref.actor.ppo_epochs", 2),
        ("actor_rollout_ref.actor.optim.lr", 1e-6), ("actor_rollout_ref.actor.kl_loss_coef", 0.0),
        ("actor_rollout_ref.actor.policy_loss.loss_mode", "rftlab_gspo"), ("algorithm.adv_estimator", "rftlab_rloo"),
    ],
)  # fmt: skip
def test_another_setting_is_another_design(place, value):
    settings = verl_config(SPLIT.llm_run, "x", CLUSTER)
    *parts, last = place.split(".")
    part = settings
    for name in parts:
        part = part[name]
    assert part[last] != value
    part[last] = value
    ours = read_design(model_config(SPLIT.llm_run), "rftlab", None)[0]
    assert facts(read_design(settings, "", None)[0]) != facts(ours)


def other(run, **estimator):
    return replace(run, design=replace(run.design, estimator=replace(run.design.estimator, **estimator)))


@pytest.mark.parametrize(
    ("run", "why"),
    [
        (run_with(replay_window=16), "no prompts"),
        (run_with(sampling=Sampling(tries=3)), "filter_groups"),
        (run_with(card="remax"), "baseline greedy"),
        (other(run_with(), surrogate=Sapo()), "no card"),
        (run_with(card="deepseek_v32"), "kl.weighted"),
        (run_with(card="icepop"), "correction mask of a token"),
        (run_with(batch_size=3, rollouts=3), "9 responses an update on 8 GPUs"),
    ],
)
def test_what_verl_cannot_do_is_said(run, why):
    assert why in refused(run, CLUSTER)


def test_yaml_is_read_as_it_was_meant_and_a_warm_up_is_in_rounds():
    start = run_with(minibatches=4)
    run = replace(start, optimizer=replace(start.optimizer, warmup_steps=10, max_grad_norm=float("inf"), eps=1e-6))
    optimizer = verl_config(run, "x", CLUSTER)["actor_rollout_ref"]["actor"]["optim"]
    assert optimizer["lr_warmup_steps"] == 3 and optimizer["override_optimizer_config"] == {"eps": 1e-6}
    assert "clip_grad: .inf\n" in yaml_text(optimizer) and "eps: 1.0e-06\n" in yaml_text(optimizer)
    yaml = pytest.importorskip("yaml")
    text = point_files(SPLIT, CLUSTER)["verl.yaml"]
    settings = yaml.safe_load(text)
    assert settings.pop("defaults") == ["ppo_trainer", "_self_"] and settings.pop("hydra")
    assert settings == verl_config(SPLIT.llm_run, SPLIT.id, CLUSTER)


@pytest.fixture(scope="module")
def written(tmp_path_factory):
    root = tmp_path_factory.mktemp("a b")  # with a space, which a command must survive
    return root, *write_pair(root, ALL, CLUSTER)


def test_the_folders_of_a_pair_and_rows_are_those_of_the_task(written):
    _, pair_folder, left_out = written
    assert len(KEPT) == 16 and len(ALL) == 25 and all("w8" in point.cell for point in ALL if point not in KEPT)
    names = {path.name for path in pair_folder.iterdir()}
    assert names == {point.id for point in KEPT} | {"data", "README.md"}
    assert set(left_out) == {point.cell for point in ALL} - {point.cell for point in KEPT}
    assert "rftlab import */run.log" in (text := (pair_folder / "README.md").read_text())
    assert text.count("replay_window = 8") == 1 and all(cell in text for cell in left_out)
    facts_of = written_design(SPLIT)
    assert (facts_of["id"], facts_of["design"]["rollouts"]) == (SPLIT.id, 1) and facts_of["config"]["level"] == "llm"
    task, run = load_task(KEPT[0].llm_run.task), KEPT[0].llm_run
    data, names = pair_folder / "data", (verl_files.TRAIN, verl_files.TEST, verl_files.SEEN)
    train, test, seen = (parquet.read_table(data / name).to_pylist() for name in names)
    assert [row["prompt"] for row in train] == list(task["train"].prompts)
    assert [row["reward_model"]["ground_truth"] for row in test] == list(task["test"].answers)
    assert [row["extra_info"]["index"] for row in seen] == list(subset(2048, run.evaluation.train_subset))
    assert {row["data_source"] for row in train + test} == {"words"} and seen[0]["data_source"] == "words-training"


def test_the_reward_is_the_strict_rule(written):
    _, pair_folder, _ = written
    (row, *_) = parquet.read_table(pair_folder / "data" / verl_files.TEST).to_pylist()
    truth = row["reward_model"]["ground_truth"]

    def reward(response, verifier="gsm8k"):
        return compute_score("words", response, truth, {**row["extra_info"], "verifier": verifier}, num_turns=2)

    assert reward(f"so #### {truth}") == {"score": 1.0, "acc": 1.0} and reward(f"so {truth}")["acc"] == 0.0
    assert reward(f"so \\boxed{{{truth}}}", "math")["acc"] == 1.0 and reward("\\boxed{" * 9, "math")["acc"] == 0.0
    with pytest.raises(UserError, match="verifier"):
        reward("x", "eval")
    names = {}
    exec((pair_folder / "data" / verl_files.REWARD).read_text(), names)
    assert names["compute_score"] is compute_score


def test_written_again_nothing_changes(written):
    root, pair_folder, _ = written
    log = pair_folder / SPLIT.id / "run.log"
    log.write_text("kept")
    before = [(path, path.stat()) for path in pair_folder.rglob("*")]
    write_pair(root, ALL, CLUSTER)
    again = [(path, path.stat()) for path in pair_folder.rglob("*")]
    assert [(path, s.st_mtime_ns, s.st_ino) for path, s in before] == [(p, s.st_mtime_ns, s.st_ino) for p, s in again]
    log.unlink()


def test_other_or_damaged_data_and_links_are_left_alone(tmp_path):
    train = write_pair(tmp_path, [SPLIT], CLUSTER)[0] / "data" / verl_files.TRAIN
    seed = replace(SPLIT, run=replace(SPLIT.llm_run, task=replace(SPLIT.llm_run.task, seed=1)))
    (elsewhere := tmp_path / "elsewhere").mkdir()
    (linked := tmp_path / "linked" / "verl").mkdir(parents=True)
    (linked / PAIR).symlink_to(elsewhere)
    for root, point, said in (
        (tmp_path, seed, "holds other data"),
        (tmp_path / "linked", SPLIT, "symbolic link"),
        (tmp_path, SPLIT, r"cannot be trusted.*train\.parquet"),
    ):
        if "trusted" in said:
            train.write_bytes(train.read_bytes()[:-1])
        with pytest.raises(UserError, match=said):
            write_pair(root, [point], CLUSTER)
    assert not list(elsewhere.iterdir())


def test_data_from_files_may_be_too_few_for_a_batch(tmp_path):
    for split, n in (("train", 40), ("test", 5)):
        rows = [{"question": f"{i} + 1 = ?", "answer": f"so #### {i + 1}"} for i in range(n)]
        (tmp_path / f"{split}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    cluster = replace(CLUSTER, source=str(tmp_path))
    points = points_of("qwen-gsm8k", cluster)
    pair_folder, left_out = write_pair(tmp_path / "r", points, cluster)
    assert left_out["64x8-paper_text"] == "batch_size = 64 of 40 questions: verl takes whole batches"
    assert {point.run.design.batch_size for point in points if point.cell not in left_out} == {1, 2, 4, 8, 16, 32}
    (row, *_) = parquet.read_table(pair_folder / "data" / verl_files.TEST).to_pylist()
    assert row["reward_model"]["ground_truth"] == "1" and row["prompt"][0]["content"].startswith("0 + 1 = ? Let's")


def test_the_command_finds_its_files_and_keeps_its_log(written):
    root, pair_folder, _ = written
    folder, programs = pair_folder / SPLIT.id, root / "programs"
    programs.mkdir()
    (programs / "python3").write_text('#!/bin/sh\nprintf "<%s>\\n" "$@"\nexit 7\n')
    (programs / "python3").chmod(0o755)
    environment = os.environ | {"PATH": f"{programs}:{os.environ['PATH']}"}
    for _ in range(2):
        done = subprocess.run(["bash", folder / "run.sh", "a.b=1"], env=environment, capture_output=True, cwd=root)
        assert done.returncode == 7
    lines = (folder / "run.log").read_text().splitlines()
    (folder / "run.log").unlink()
    data = pair_folder / "data"
    assert len(lines) == 2 * 11 and lines[:6] == [
        *("<-m>", "<verl.trainer.main_ppo>", "<--config-path>", f"<{folder}>", "<--config-name>", "<verl>")
    ]
    assert f"<data.train_files='{data / verl_files.TRAIN}'>" in lines and lines[10] == "<a.b=1>"
    assert f"<data.val_files=['{data / verl_files.TEST}','{data / verl_files.SEEN}']>" in lines
    assert f"<reward.custom_reward_function.path='{data / verl_files.REWARD}'>" in lines


def log_of(point: RunSpec) -> str:
    """What verl prints of a run, as far as it is read."""
    lines = pformat(verl_config(point.llm_run, point.id, CLUSTER)).splitlines()
    for step in range(21):
        scores = f"val-core/words/acc/mean@2:{step / 40} - val-core/words-training/acc/mean@2:{step / 30}"
        trained = f"timing_s/step:3.0 - critic/score/mean:{step / 50}"
        lines.append(f"step:{step} - {' - '.join([trained] * (step > 0) + [scores] * (step % 5 == 0))}")
    return "".join(f"(TaskRunnerV1 pid=7) {line}\n" for line in lines)


def test_a_log_comes_back_as_its_cells_run(tmp_path):
    points = [SPLIT, replace(SPLIT, run=replace(SPLIT.llm_run, seed=1)), KEPT[2]]
    logs = [tmp_path / point.id / "run.log" for point in points]
    for point, log in zip(points, logs, strict=True):
        log.parent.mkdir()
        log.write_text(log_of(point))
    runs = read_logs(logs)
    assert [run.name for run in runs] == ["32x1+7-paper_text-s0", "32x1+7-paper_text-s1", "32x8-paper_text-s0"]
    for run, point in zip(runs, points, strict=True):
        assert facts(run.design) == facts(read_design(model_config(point.llm_run), "rftlab", None)[0])
    design = {(piece.split, piece.metric): (list(piece.rounds), list(piece.values)) for piece in runs[0].pieces}
    assert design["test", "pass_at_1"] == ([0, 5, 10, 15, 20], [0.0, 0.125, 0.25, 0.375, 0.5])
    assert design["train", "train_pass_at_1"][0] == [0, 5, 10, 15, 20]
    write_collection(tmp_path / "results", "mine", runs)
    one = free_source("imported:mine")
    side = source_groups(one, one.runs(tmp_path / "results"), ("test", "pass_at_1"))
    assert [(group.label, len(group.runs)) for group in side.groups] == [("32x1", 2), ("32x8", 1)]


def test_a_log_of_somebody_elses_keeps_its_name(tmp_path):
    (log := tmp_path / "run.log").write_text(log_of(SPLIT).replace("'rftlab'", "'other'"))
    (run,) = read_logs([log])
    assert run.name == "run" and not any(piece.metric == "train_pass_at_1" for piece in run.pieces)


@pytest.mark.parametrize(
    ("flags", "said"),
    [
        ("tiny-mix97", "model.source = 'tiny' is no folder and no name on the hub"),
        (PAIR, "'smollm2-135m' is no folder"),
        (f"{PAIR} --verl.model 7B", "'7B' is no folder"),
    ],
)
def test_a_model_that_a_cluster_cannot_find_is_a_line(flags, said, tmp_path):
    with pytest.raises(UserError, match=said):
        command(f"reproduce --level llm --backend verl --results {tmp_path / 'r'} --pair {flags}".split())


def test_a_dry_run_whose_model_does_not_fit_says_so_and_writes_nothing(tmp_path, capsys):
    asked = ("reproduce --level llm --backend verl --seeds 1 --dry-run --pair qwen-gsm8k --verl.model 7B "
             "--verl.gpus-per-node 1 --gpu A100-40 --results")  # fmt: skip
    assert command([*asked.split(), str(tmp_path / "r")]) == 1
    assert " no " in capsys.readouterr().out and not (tmp_path / "r").exists()
