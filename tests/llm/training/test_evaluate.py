"""What a run measures: evaluations with standard errors and pass@k, and rounds.jsonl, which has every round once,
whatever killed the run."""

import itertools
import json
from types import SimpleNamespace
from unittest.mock import Mock

import numpy as np
import pandas as pd
import pytest

import rftlab.llm.training.evaluate
import rftlab.llm.training.samples
from rftlab import Sampling, UserError
from rftlab.llm.engines.rollouts import Rollouts, ignore
from rftlab.llm.policy.packing import Responses, packed
from rftlab.llm.random import subset
from rftlab.llm.rewards.math_pool import Checks
from rftlab.llm.rewards.verify import Scores, score, well_formed
from rftlab.llm.tracking import ROUNDS, read_rounds
from rftlab.llm.train import StopTraining, TrainingCallbacks, train
from rftlab.llm.training.evaluate import UNSEEN
from rftlab.llm.training.samples import Judge
from rftlab.shared.evalstats import fixed_set_error, measured_set_error, pass_at_k
from rftlab.studies.readers.read import read_logs
from tests.support.trainer.tiny_runs import killed_at, one_cache, run_of, same  # noqa: F401


def test_pass_at_k_is_the_mean_over_all_subsets():
    right = np.array([[0, 0, 0, 0], [1, 0, 0, 0], [1, 1, 0, 1], [1, 1, 1, 1.0]])
    for k in range(1, 5):
        expected = [np.mean([max(row[list(s)]) for s in itertools.combinations(range(4), k)]) for row in right]
        np.testing.assert_allclose(pass_at_k(4, right.sum(1), k), expected, atol=1e-15)
    with pytest.raises(UserError, match="k = 5; allowed: 1 to n = 4"):
        pass_at_k(4, right.sum(1), 5)


def test_standard_errors_are_those_of_a_fixed_set():
    rng = np.random.default_rng(0)
    rates = rng.beta(0.5, 0.8, 200)
    draws = [(rng.random((200, 4)) < rates[:, None]).astype(float) for _ in range(2000)]
    truth = np.std([d.mean() for d in draws])
    assert np.mean([measured_set_error(d) for d in draws]) == pytest.approx(truth, rel=0.05)
    assert truth == pytest.approx(fixed_set_error(rates, 4), rel=0.05)
    single = [d[:, :1] for d in draws]
    assert np.mean([measured_set_error(d) for d in single]) > np.std([d.mean() for d in single])


def test_the_training_questions_are_always_the_same():
    assert subset(30, 10).tolist() == subset(30, 10).tolist() == sorted(set(subset(30, 10)))
    assert len(subset(30, 10)) == 10 and subset(30, 500).tolist() == list(range(30))


def test_what_an_evaluation_asks(tmp_path, monkeypatch):
    asked = []
    real = rftlab.llm.training.evaluate.answer_questions

    def listening(run, engine, judge, problems, *more):
        right, checks = real(run, engine, judge, problems, *more)
        asked.append((len(problems.answers), *more, right["strict"]))
        return right, checks

    monkeypatch.setattr(rftlab.llm.training.evaluate, "answer_questions", listening)
    run = run_of(rounds=2, eval_every=2, samples=3, pass_at=(1, 3), train_subset=12, temperature=0.8)
    outcome = train(run, tmp_path)
    sets = ((12, 0, 3, 0.8), (12, 0, 1, 0.0), (20, UNSEEN, 3, 0.8), (20, UNSEEN, 1, 0.0))
    assert [call[:5] for call in asked] == [(*each, index) for index in (0, 2) for each in sets]
    row, table = outcome.metrics.iloc[-1], asked[-2][5]
    assert row.test_strict == table.mean() == outcome.curve.test_pass_at_1[-1]
    assert row.test_strict_error == measured_set_error(table)
    assert row.test_strict_pass_at_1 == pytest.approx(row.test_strict)
    assert row.test_strict_pass_at_3 == table.max(1).mean()
    assert row.test_greedy_strict == asked[-1][5].mean() and row.train_greedy_flexible >= row.train_greedy_strict
    assert outcome.curve.test_flexible[-1] >= row.test_strict > 0


def test_the_validation_split_can_take_the_place_of_the_test_split(tmp_path):
    a, b = (
        train(run_of(rounds=2, eval_every=2, split=split, samples=8), tmp_path / split).metrics
        for split in ("test", "validation")
    )
    assert a.train_strict.equals(b.train_strict) and not a.test_strict.equals(b.test_strict)


def test_a_run_without_a_signal_says_so_and_goes_on(tmp_path, monkeypatch):
    never, said = lambda verifier, responses, *more: Scores(*np.zeros((2, len(responses))), Checks()), []
    train(run_of(rounds=4, eval_every=2), tmp_path / "heard", TrainingCallbacks(remark=said.append))
    assert said == []
    monkeypatch.setattr(rftlab.llm.training.samples, "score", never)
    outcome = train(run_of(rounds=4, eval_every=2), tmp_path / "silent", TrainingCallbacks(remark=said.append))
    assert outcome.curve.zero_signal_fraction[1:].tolist() == [1, 1] and outcome.diverged_at is None
    assert len(said) == 1 and said[0].startswith("round 2: 100% of the groups since the last evaluation had no signal")


def test_math_verify_begins_while_others_are_sampled(monkeypatch):
    monkeypatch.setattr(rftlab.llm.training.samples, "score", score)
    texts = [r"\boxed{12}", r"\boxed{13}", "nothing", r"so $12.0$", r"\boxed{12.0}"]
    pool, letters, truths = Mock(), SimpleNamespace(decode=lambda ids: "".join(map(chr, ids))), ["12", "0.5"]
    pool.equivalent.side_effect = lambda pairs: (np.zeros(len(pairs), dtype=bool), Checks(len(set(pairs))))
    tokens, starts = packed([list(map(ord, text)) for text in texts])
    responses = Responses(((1,), (2,)), np.array([0, 0, 0, 1, 1]), tokens, starts)
    rollouts = Rollouts(responses, np.zeros(len(tokens)), np.ones(5, dtype=bool))
    judge = Judge("math", letters, pool)
    ended = judge.early(truths)
    for i in (1, 4, 0):
        ended([(rollouts.responses.group[i], rollouts.responses.response(i))])
    early = [pair for call in pool.submit.call_args_list for pair in call.args[0]]
    assert early == [("13", "12"), ("12.0", "0.5")] and not pool.equivalent.called
    samples, checks = judge.scored(rollouts, np.array([7, 8]), truths)
    pool.equivalent.assert_called_once_with([("13", "12"), ("12.0", "0.5"), ("12.0", "0.5")])
    assert checks == Checks(2)
    assert samples.strict.tolist() == samples.flexible.tolist() == [1, 0, 0, 0, 0] and samples.texts == texts
    assert Judge("gsm8k", letters, pool).early(truths) is ignore, "text decides, so there is nothing to begin with"


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
