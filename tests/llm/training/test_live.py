"""rounds.jsonl has every round once, whatever killed the run, and says what the records of its rollouts say."""

import json

import numpy as np
import pandas as pd
import pytest

from rftlab.llm.rewards.verify import well_formed
from rftlab.llm.tracking import ROUNDS, read_rounds
from rftlab.llm.train import StopTraining, TrainingCallbacks, train
from rftlab.shared.config.sampling import Sampling
from rftlab.studies.readers.read import read_logs
from tests.support.trainer.tiny_runs import killed_at, one_cache, run_of, same  # noqa: F401


def lasting(columns):
    """Measurements that do not depend on the machine."""
    return {name: value for name, value in columns.items() if not name.startswith(("second", "peak", "tokens_per"))}


@pytest.mark.parametrize("settings", [{}, {"sampling": Sampling(replayed=2)}], ids=["new", "replayed"])
def test_measurements_are_those_of_the_records(settings, tmp_path):
    """Of the responses that were sampled in the round, which replayed ones join."""
    train(run_of(rounds=8, eval_every=2, **settings), tmp_path)
    rounds = read_rounds(tmp_path)
    rows = pd.read_parquet(tmp_path / "rollouts")
    assert [each["round"] for each in rounds] == [1, 2, 3, 4, 5, 6, 7, 8]
    assert (rows["role"] == "replayed").any() == bool(settings)
    for each in rounds:
        mine = rows[(rows["round"] == each["round"]) & (rows["role"] == "trained")]
        updated = rows[(rows["round"] == each["round"]) & rows["role"].isin(["trained", "replayed"])]
        rewards, silent = mine["reward"], updated.groupby("prompt")["advantage"].agg(lambda a: (a == 0).all())
        logp = np.concatenate(mine["logp"].to_list())
        expected = {
            "reward": rewards.mean(),
            "pass_at_1": mine["strict"].mean(),
            "flexible": mine["flexible"].mean(),
            "format_rate": well_formed("arithmetic", mine["text"].to_list()).mean(),
            "entropy": -logp.mean(),
            "response_length": mine["tokens"].map(len).mean(),
            "truncated_fraction": 1 - mine["finished"].mean(),
            "zero_signal_fraction": silent.mean(),
        }
        assert {name: each[name] for name in expected} == pytest.approx(expected, abs=1e-12)
        assert each["seconds"] > each["seconds_sample"] > 0 and each["tokens_per_second"] > 0


def test_every_round_once_after_kills(tmp_path):
    run = run_of(rounds=8, eval_every=4, checkpoint_every=2)
    train(run, tmp_path / "whole")
    killed_at(run, tmp_path / "parts", 3)
    assert [each["round"] for each in read_rounds(tmp_path / "parts")] == [1, 2, 3]  # one more than the checkpoint
    with (tmp_path / "parts" / ROUNDS).open("ab") as file:
        file.write(b'{"round": 4, "rew')  # the line that a crash cut
    assert len(read_rounds(tmp_path / "parts")) == 3
    train(run, tmp_path / "parts")
    whole, parts = ([lasting(each) for each in read_rounds(tmp_path / name)] for name in ("whole", "parts"))
    assert whole == parts and len(whole) == 8


@pytest.mark.parametrize("line", [b"[1]", b"[" * 5000, b'{"round": "x"}', b'{"round": -1}', b"\xff", b"null"])
def test_a_line_that_is_none_of_ours_is_left_out(line, tmp_path):
    (tmp_path / ROUNDS).write_bytes(line + b"\n" + json.dumps({"round": 1}).encode() + b"\n")
    assert read_rounds(tmp_path) == [{"round": 1}]


def test_a_stopped_run_keeps_its_round_and_goes_on(tmp_path):
    run = run_of(rounds=8, eval_every=4)
    whole = train(run, tmp_path / "whole")

    def stop(done, columns):
        if columns["round"] == 3:
            raise StopTraining("enough")

    with pytest.raises(StopTraining, match="enough"):
        train(run, tmp_path / "parts", TrainingCallbacks(measured=stop))
    assert (tmp_path / "parts" / "checkpoints" / "000003").is_dir()
    rounds = []
    assert same(whole, train(run, tmp_path / "parts", TrainingCallbacks(rounds=rounds.append)))
    assert rounds == [4, 5, 6, 7, 8]


def test_a_folder_is_read_with_its_rounds(tmp_path):
    train(run_of(rounds=8, eval_every=4), tmp_path / "run")
    (run,) = read_logs([tmp_path / "run"])
    rounds = read_rounds(tmp_path / "run")
    pieces = {(piece.split, piece.metric): piece for piece in run.pieces}
    names = {("train", "entropy"): "entropy", ("train", "reward_mean"): "reward", ("", "mismatch"): "mismatch"}
    for key, name in names.items():
        assert pieces[key].rounds.tolist() == list(range(1, 9))
        assert pieces[key].values.tolist() == [each[name] for each in rounds]
    assert pieces["test", "pass_at_1"].rounds.tolist() == [0, 4, 8]
