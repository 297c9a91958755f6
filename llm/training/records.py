"""Write the records of a run's rounds: every rollout in Parquet files, and the measurements of each round as a line of
JSON.

    rollouts/000001-000100.parquet     rounds 1 to 100, written before the checkpoint of round 100
    rounds.jsonl                       {"round": 12, "reward": 0.41, "entropy": 0.83, ...}
A killed run writes the same Parquet file again, so a resumed run loses and repeats nothing. Names of measurements are
those of `rftlab import` and `rftlab diagnose`. A crash loses the round in which it happened."""

import io
import json
import time
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pyarrow
import pyarrow.parquet

from rftlab.llm.rewards.verify import well_formed
from rftlab.llm.tracking import ROUNDS, measured, round_number
from rftlab.llm.training.samples import Samples
from rftlab.llm.training.trainer import Round, Trainer
from rftlab.shared.plumbing.files import reported, write_file
from rftlab.shared.plumbing.folders import file_below, path_kind, read_file

SCHEMA = pyarrow.schema(
    [
        ("round", pyarrow.int64()),
        ("prompt", pyarrow.int64()),
        ("rollout", pyarrow.int64()),
        ("role", pyarrow.string()),
        ("text", pyarrow.string()),
        ("tokens", pyarrow.list_(pyarrow.int64())),
        ("logp", pyarrow.list_(pyarrow.float64())),
        ("finished", pyarrow.bool_()),
        ("strict", pyarrow.float64()),
        ("flexible", pyarrow.float64()),
        ("reward", pyarrow.float64()),
        ("advantage", pyarrow.float64()),
    ]
)
"""Columns of the rollouts. prompt: its number in the training split, from 0. rollout: its number among the prompt's.
role: trained; replayed (of an earlier round, trained on again); support (for baseline sets); dropped (of a group that
dynamic sampling replaced); greedy (a baseline). logp: of the sampler. reward: after penalties; null for dropped and
greedy ones. advantage: of the first token; null for all that are not trained on. A user's rewards follow, each as
`reward_<name>`, before its weight."""


def rollout_table(done: Round, numbers: Sequence[int]) -> pyarrow.Table:
    """Return the rows of a round; rounds count from 1. numbers: of the prompts in the training split."""
    own = _table(
        done.number,
        numbers,
        done.samples,
        np.where(done.samples.replayed, "replayed", np.where(done.samples.trained, "trained", "support")),
        done.rewards,
        done.advantages,
    )
    others = [
        _table(done.number, numbers, samples, np.full(len(samples.texts), role), *2 * [samples.strict * np.nan])
        for role, samples in done.others
    ]
    return pyarrow.concat_tables([own, *others])


def _table(
    index: int, numbers: Sequence[int], samples: Samples, role: np.ndarray, rewards: np.ndarray, advantages: np.ndarray
) -> pyarrow.Table:
    responses, n = samples.rollouts.responses, len(samples.texts)
    first = np.searchsorted(samples.group, np.arange(len(samples.contexts)))
    columns = {
        "round": np.full(n, index + 1),
        "prompt": np.asarray(numbers)[samples.contexts][samples.group],
        "rollout": np.arange(n) - first[samples.group],
        "role": pyarrow.array(role, pyarrow.string()),
        "text": pyarrow.array([text.encode("utf-8", "replace").decode() for text in samples.texts], pyarrow.string()),
        "tokens": pyarrow.ListArray.from_arrays(
            pyarrow.array(responses.starts, pyarrow.int32()), pyarrow.array(responses.tokens)
        ),
        "logp": pyarrow.ListArray.from_arrays(
            pyarrow.array(responses.starts, pyarrow.int32()), pyarrow.array(samples.rollouts.logp)
        ),
        "finished": samples.rollouts.finished,
        "strict": samples.strict,
        "flexible": samples.flexible,
        "reward": pyarrow.array(rewards, mask=np.isnan(rewards)),
        "advantage": pyarrow.array(advantages, mask=np.isnan(advantages)),
    }
    table = pyarrow.table(columns, schema=SCHEMA)
    for name, own_R in (samples.own.by_name if samples.own else {}).items():
        table = table.append_column(f"reward_{name}", pyarrow.array(own_R))
    return table


def write_rollouts(folder: Path, tables: list[pyarrow.Table], first: int, last: int) -> None:
    """Write the rollouts of rounds first .. last."""
    write_file(file_below(folder, "rollouts", f"{first:06}-{last:06}.parquet"), parquet(pyarrow.concat_tables(tables)))


def parquet(table: pyarrow.Table) -> bytes:
    """Return a table as the bytes of a Parquet file."""
    out = io.BytesIO()
    pyarrow.parquet.write_table(table, out)
    return out.getvalue()


def measured_round(trainer: Trainer) -> tuple[Round, dict[str, float]]:
    """Train for a round. Return its record and its measurements, nan where there is none, {} where it diverged.

    entropy is the mean of -log p of the sampled tokens, an unbiased estimate of the policy's entropy at the temperature
    of training without further cost. entropy_bonus is the coefficient of the next update's bonus, where it has a
    target. kl_ref is the estimator's KL penalty per token. mismatch is the mean distance of the log-probabilities of
    sampler and trainer. peak_mb is the largest memory since the last evaluation.
    """
    state, meter, began = trainer.state, trainer.meter, time.perf_counter()
    totals, before, tokens = dict(state.totals), dict(meter.seconds), state.tokens
    done = trainer.round()
    if done.diverged:
        return done, {}

    def mean(name: str, count: str) -> float:
        """Return the round's addition to one total, divided by its addition to another."""
        amount, units = (state.totals.get(key, 0.0) - totals.get(key, 0.0) for key in (name, count))
        return amount / units if units else float("nan")

    samples = done.samples
    rows, rollouts = samples.new, samples.rollouts
    sampled_logp = rollouts.logp[~np.repeat(samples.replayed, rollouts.responses.lengths)]
    seconds, design = time.perf_counter() - began, trainer.run.design
    formed = well_formed(trainer.data.verifier, [samples.texts[row] for row in rows])
    own = {} if samples.own is None else samples.own.by_name
    return done, {
        "round": done.number + 1,
        "reward": float(done.rewards[rows].mean()),
        "pass_at_1": float(samples.strict[rows].mean()),
        "flexible": float(samples.flexible[rows].mean()),
        "format_rate": float(formed.mean()),
        **{f"reward_{name}": float(rewards[rows].mean()) for name, rewards in own.items()},
        "kl_ref": mean("kl", "weighed") if design.estimator.kl.kind != "none" else float("nan"),
        "entropy": float(-sampled_logp.mean()) if len(sampled_logp) else float("nan"),
        **({} if state.bonus is None else {"entropy_bonus": float(state.bonus.prod())}),
        "clip_fraction": mean("clipped", "weighed"),
        "grad_norm": mean("grad_norm", "updates"),
        "zero_signal_fraction": mean("silent", "contexts"),
        "response_length": float(rollouts.responses.lengths[rows].mean()),
        "truncated_fraction": float(1 - rollouts.finished[rows].mean()),
        "mismatch": mean("mismatch", "rounds"),
        "tokens_per_second": (state.tokens - tokens) / seconds,
        "seconds": seconds,
        **{f"seconds_{name}": value - before[name] for name, value in meter.seconds.items()},
        "peak_mb": max(meter.peak.values()),
    }


def open_rounds(folder: Path, rounds: int) -> Path:
    """Return the file of a run's rounds, cut to the first `rounds`. Later rounds, which will be trained again, and an
    incomplete line of a crash are dropped."""
    place = file_below(folder, ROUNDS)
    with reported(place):
        there = read_file(place) if path_kind(place) else b""
        kept = b"".join(line + b"\n" for line in there.split(b"\n") if 0 < round_number(line) <= rounds)
        if kept != there:
            write_file(place, kept)
    return place


def add_round(place: Path, columns: dict[str, float]) -> None:
    """Append the measurements of a round to the file. Raises UserError where the disk is full."""
    line = json.dumps({"round": columns["round"], **measured(columns)}) + "\n"
    with reported(place), place.open("ab") as file:
        file.write(line.encode())
