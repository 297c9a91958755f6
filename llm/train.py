"""Run the training of a language model from a configuration to a learning curve, in a folder from which it can resume.

config.json                     the canonical configuration
checkpoints/000100/             llm/training/checkpoint.py
rollouts/000001-000100.parquet  llm/training/records.py
curve.parquet, metrics.parquet  as returned, after every evaluation
rounds.jsonl                    llm/training/records.py, after every round
lock                            llm/stored.py
"""

import json
import time
from collections.abc import Callable, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import pandas as pd
import pyarrow
import torch

from rftlab.llm.config import LLMRun, model_config
from rftlab.llm.engines.rollouts import Engine, HFEngine
from rftlab.llm.meter import within_memory
from rftlab.llm.models.load import Data, load_data, load_model
from rftlab.llm.policy.policy import Policy
from rftlab.llm.rewards.call import RewardCaller
from rftlab.llm.rewards.load import Function, Given, NamedReward, loaded
from rftlab.llm.rewards.math_pool import MathPool
from rftlab.llm.rewards.verify import NONE
from rftlab.llm.stored import locked
from rftlab.llm.tasks.codec import Codec
from rftlab.llm.tracking import Tracker
from rftlab.llm.training.checkpoint import Progress, check_config, recorded, resume, save
from rftlab.llm.training.evaluate import evaluate
from rftlab.llm.training.records import add_round, measured_round, open_rounds, parquet, rollout_table, write_rollouts
from rftlab.llm.training.trainer import Round, Trainer
from rftlab.shared.curve import FLEXIBLE, Curve, make_curve
from rftlab.shared.custom.functions import at_round
from rftlab.shared.plumbing.callbacks import noop
from rftlab.shared.plumbing.errors import UserError, check, check_type
from rftlab.shared.plumbing.files import remove_partial, reported, write_file
from rftlab.shared.plumbing.folders import FILE, entries, folder_below, path_kind, read_json

SILENT = 0.99
"""Share of zero-variance groups above which the user is warned."""
TABLES = ("curve.parquet", "metrics.parquet")
KEPT = "finished rounds up to the last checkpoint are kept, run the same command again"


class StopTraining(UserError):
    """Raised by `TrainingCallbacks.measured` to end a run after the round, whose checkpoint is still written."""


class TrainingResult(NamedTuple):
    """Result of a run."""

    curve: Curve
    metrics: pd.DataFrame
    """One row per evaluation with measurements that only a language model has: greedy Pass@1 and errors, lengths,
    seconds and memory by phase."""
    diverged_at: int | None
    """The round at which weights or gradient were not finite (the curve ends before), or None."""


class TrainingCallbacks(NamedTuple):
    """Callbacks for the progress of a run."""

    rounds: Callable[[int], None] = noop
    """Called with the number of rounds done, after each round."""
    measured: Callable[[Round, dict[str, float]], None] = noop
    """Called after each round with its responses and its measurements (llm/training/records.py)."""
    evaluated: Tracker = noop
    """Called after each evaluation with the round and the columns of the curve and of metrics."""
    remark: Callable[[str], None] = noop
    """Called with warnings for the user."""
    pretraining: Callable[[int, float], None] = noop
    """Called with steps and Pass@1 while the base model is pre-trained."""


def train(
    run: LLMRun,
    folder: Path,
    report: TrainingCallbacks | None = None,
    engine_of: Callable[[Policy, Codec], Engine] | None = None,
    *,
    reward: Given | None = None,
    reward_weights: Sequence[float] | None = None,
) -> TrainingResult:
    """Train, or resume training, by a configuration in a folder. Equal arguments give equal curves, except for times;
    so do runs that were killed and resumed.

    engine_of: makes the engine that samples, in place of `compute.engine`.
    reward: functions to train on in place of the task's strict reward, which still gives Pass@1: one, several, or
    several by name (llm/rewards/load.py lists their arguments). They are summed with reward_weights.
    Raises UserError for bad input, a folder of another configuration, a full disk, too little memory, and where sampler
    and trainer disagree; Busy where another process trains in the folder.
    """
    check_type("run", run, LLMRun, "an LLMRun")
    check_type("folder", folder, (str, Path), "a path")
    report, folder = report or TrainingCallbacks(), Path(folder)
    rewards = {} if reward is None else loaded(reward, reward_weights)
    check(bool(rewards) or not run.rewards, "the run has rewards and train got none; allowed: reward=, with functions")
    run = replace(run, rewards=tuple(rewards))
    with locked(folder, report.remark), torch_threads(run), torch.enable_grad(), within_memory("the run"):
        _open(folder, run, report.remark)
        return _train(run, folder, report, engine_of, rewards)


@contextmanager
def torch_threads(run: LLMRun):
    """Run the block with the number of threads that the run asks for."""
    before = torch.get_num_threads()
    torch.set_num_threads(run.compute.threads or before)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def _train(
    run: LLMRun,
    folder: Path,
    report: TrainingCallbacks,
    engine_of: Callable[[Policy, Codec], Engine] | None,
    rewards: dict[NamedReward, Function],
) -> TrainingResult:
    if run.compute.engine == "vllm" and engine_of is None:  # fails before a model is fetched
        from rftlab.llm.engines.vllm import installed_vllm

        installed_vllm()
    model, codec = load_model(run, report.pretraining, report.remark)
    policy = Policy(model, run.compute, run.temperature)
    data = load_data(run, codec)
    for split, count in data.left_out.items():
        if count:
            report.remark(
                f"{split}: {count} problems left out, prompts longer than model.max_prompt_length = "
                f"{run.model.max_prompt_length} tokens"
            )
    caller = training_caller(run, rewards, data, codec, report.remark)
    if run.idle_penalty:
        report.remark(run.idle_penalty)
    with MathPool() as pool:
        engine = engine_of(policy, codec) if engine_of else engine_for(run, policy, codec)
        trainer = Trainer(run, policy, engine, codec, data, pool, caller)
        return _rounds(folder, trainer, report)


def training_caller(
    run: LLMRun, rewards: dict[NamedReward, Function], data: Data, codec: Codec, remark: Callable[[str], None]
) -> RewardCaller | None:
    """Return the caller of a user's rewards, or None. Raises UserError where there is neither a reward nor a true
    answer, and for a reward with a parameter that nothing can fill."""
    if not rewards:
        check(
            data.verifier != NONE,
            "the data have no true answers (task.own.truth_column) and there is no reward; allowed: one of them",
        )
        return None
    columns = list(dict.fromkeys(name for row in data.train.rows for name in row))
    return RewardCaller(rewards, columns, run.reward_timeout, lambda token: codec.decode([token]), remark)


def engine_for(run: LLMRun, policy: Policy, codec: Codec) -> Engine:
    """Return the engine that the run names, with the weights of a policy."""
    if run.compute.engine == "hf":
        return HFEngine(policy, codec.stops)
    from rftlab.llm.engines.vllm import VLLMEngine

    return VLLMEngine(run, policy, codec)


def _open(folder: Path, run: LLMRun, remark: Callable[[str], None]) -> None:
    """Write the configuration to a folder, or check that the folder belongs to it. A folder belongs to the run whose
    rounds it holds; a run that was refused leaves it free.

    A checkpoint holds the configuration too, so a damaged config.json beside one is written again.
    """
    config, place = json.loads(json.dumps(model_config(run))), folder / "config.json"
    with reported(folder):
        parts = [folder_below(folder, name) for name in ("checkpoints", "rollouts")]
        for part in (folder, *parts):
            remove_partial(part)
        proven = path_kind(place) == FILE and recorded(folder) == config
        there = _config(place, proven)
        if proven and there != config:
            remark(f"damaged, written again: {place}")
        if proven or there is None or (there.get("level") == "llm" and not any(map(entries, parts))):
            if not proven and there != config:  # tables without a checkpoint belong to the previous run
                for name in TABLES:
                    (folder / name).unlink(missing_ok=True)
            write_file(place, json.dumps(config, indent=1).encode())
        else:
            check_config(folder, there, config)


def _config(place: Path, proven: bool) -> dict | None:
    """Return the configuration in a folder; None where there is none, or where it cannot be read and the folder's owner
    is `proven` otherwise."""
    try:
        return dict(read_json(place)) if path_kind(place) else None
    except (OSError, ValueError, TypeError) as error:
        check(proven, f"{place} cannot be read: {error}; remove it, or name another folder")
        return None


def _rounds(folder: Path, trainer: Trainer, report: TrainingCallbacks) -> TrainingResult:
    design, state, began = trainer.run.design, trainer.state, time.perf_counter()
    so_far = resume(folder, trainer, report.remark) or Progress([], [], 0.0)

    def seconds() -> float:
        return so_far.seconds + time.perf_counter() - began

    if not so_far.rows:
        _evaluate(folder, trainer, so_far, seconds, report)
    log = open_rounds(folder, state.round)
    while state.round < design.rounds:
        tables: list[pyarrow.Table] = []
        first, stop = state.round + 1, None
        while stop is None and (not tables or state.round % trainer.run.interval):
            with at_round(state.round):
                done, measured = measured_round(trainer)
            tables.append(rollout_table(done, trainer.data.train.numbers))
            if done.diverged:
                report.remark(f"weights or gradient are not finite in round {done.number + 1}; the run ends")
                _write(folder, tables, first, done.number + 1)
                return _outcome(folder, so_far, done.number)
            add_round(log, measured)
            report.rounds(state.round)
            try:
                report.measured(done, measured)
            except StopTraining as asked:
                stop = asked
        _write(folder, tables, first, state.round)
        if state.round % design.eval_every == 0:
            _evaluate(folder, trainer, so_far, seconds, report)
        save(folder, trainer, so_far._replace(seconds=seconds()))
        if stop is not None:
            raise stop
    return _outcome(folder, so_far, None)


def _write(folder: Path, tables: list[pyarrow.Table], first: int, last: int) -> None:
    with reported(folder / "rollouts", KEPT):
        write_rollouts(folder, tables, first, last)


def _write_tables(folder: Path, progress: Progress) -> None:
    with reported(folder, KEPT):
        write_file(folder / TABLES[0], parquet(pyarrow.Table.from_pandas(_curve(progress).to_frame())))
        write_file(folder / TABLES[1], parquet(pyarrow.Table.from_pandas(_metrics(progress))))


def _curve(progress: Progress) -> Curve:
    """Return the curve so far. Checkpoints store its last two columns, the flexible ones, among the metrics."""
    flexible = [tuple(metrics[name] for name in FLEXIBLE) for metrics in progress.metrics]
    return make_curve([row + rates for row, rates in zip(progress.rows, flexible, strict=True)])


def _metrics(progress: Progress) -> pd.DataFrame:
    return pd.DataFrame(progress.metrics).drop(columns=list(FLEXIBLE))


def _outcome(folder: Path, progress: Progress, diverged_at: int | None) -> TrainingResult:
    """Return the result of a run. Its tables are written once more, in case those of a finished run were damaged."""
    _write_tables(folder, progress)
    return TrainingResult(_curve(progress), _metrics(progress), diverged_at)


def _evaluate(
    folder: Path, trainer: Trainer, progress: Progress, seconds: Callable[[], float], report: TrainingCallbacks
) -> None:
    """Evaluate, add a row to the curve and to the metrics, and reset the totals."""
    run, state = trainer.run, trainer.state
    with trainer.meter.phase("evaluate"):
        scores, checks = evaluate(run, trainer.engine, trainer.judge, trainer.data, state.round)
    trainer.count_checks(checks)
    nan = float("nan")
    totals, has_kl = state.totals, run.design.estimator.kl.kind != "none"

    def mean(name: str, count: str) -> float:
        return totals[name] / totals[count] if totals.get(count) else nan

    silent = mean("silent", "contexts")
    _tell_silence(silent, state.round, progress, report)
    means = (mean("kl", "weighed") if has_kl else nan, mean("clipped", "weighed"), silent, mean("grad_norm", "updates"))
    pass_at_1 = (scores["train_strict"], scores["test_strict"])
    progress.rows.append(
        (run.seed, state.round, state.rollouts, state.tokens, seconds(), mean("reward", "trained"), *pass_at_1, *means)
    )
    parts = {f"reward_{name}": mean(name, "trained") for name in ("strict", "flexible")}
    parts |= {f"reward_{each.name}": mean(f"reward {each.name}", "trained") for each in run.rewards}
    parts |= {
        "length": mean("length", "trained"),
        "finished": mean("finished", "trained"),
        "mismatch": mean("mismatch", "rounds"),
    }
    counts = {name: totals.get(name, 0.0) for name in ("checks_asked", "checks_failed", "checks_timed_out")}
    left_out = dict(zip(("left_out_train", "left_out_test"), trainer.data.left_out.values(), strict=True))
    progress.metrics.append(
        {"seed": run.seed, "round": state.round, **scores, **parts, **counts, **left_out, **trainer.meter.columns()}
    )
    state.totals = {}
    trainer.meter.clear()
    _write_tables(folder, progress)
    last = {name: column[-1].item() for name, column in _curve(progress)._asdict().items()}
    report.evaluated(state.round, last | progress.metrics[-1])


def _tell_silence(silent: float, round_index: int, progress: Progress, report: TrainingCallbacks) -> None:
    """Warn once when nearly all groups begin to have zero variance, because a curve that is flat for this reason shows
    nothing about a design."""
    before = progress.rows[-1][Curve._fields.index("zero_signal_fraction")] if progress.rows else 0.0
    if silent >= SILENT and not before >= SILENT:
        report.remark(
            f"round {round_index}: {silent:.0%} of the groups since the last evaluation had no signal, so "
            "hardly anything is learned; "
            "responses that are never right, or always, or whose rewards are all equal, give none: use worked examples "
            "in the prompts, an easier task, more rollouts or another model"
        )
