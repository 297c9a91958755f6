"""Evaluation: what is counted, its standard errors, and pass@k."""

import itertools

import numpy as np
import pytest

import rftlab.llm.training.evaluate
import rftlab.llm.training.samples
from rftlab.llm.engines.rollouts import Rollouts, ignore
from rftlab.llm.policy.packing import Responses, packed
from rftlab.llm.random import subset
from rftlab.llm.rewards.math_pool import Checks
from rftlab.llm.rewards.verify import Scores, score
from rftlab.llm.train import TrainingCallbacks, train
from rftlab.llm.training.evaluate import UNSEEN
from rftlab.llm.training.samples import Judge
from rftlab.shared.evalstats import fixed_set_error, measured_set_error, pass_at_k
from rftlab.shared.plumbing.errors import UserError
from tests.support.trainer.tiny_runs import one_cache, run_of  # noqa: F401


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
    def never(verifier, responses, truths, pool):
        nothing = np.zeros(len(responses))
        return Scores(nothing, nothing, Checks())

    said = []
    train(run_of(rounds=4, eval_every=2), tmp_path / "heard", TrainingCallbacks(remark=said.append))
    assert said == []
    monkeypatch.setattr(rftlab.llm.training.samples, "score", never)
    outcome = train(run_of(rounds=4, eval_every=2), tmp_path / "silent", TrainingCallbacks(remark=said.append))
    assert outcome.curve.zero_signal_fraction[1:].tolist() == [1, 1] and outcome.diverged_at is None
    assert len(said) == 1 and said[0].startswith("round 2: 100% of the groups since the last evaluation had no signal")


class Listening:
    """Stands in for the pool: notes what it is asked, and when."""

    def __init__(self):
        self.early, self.late = [], []

    def submit(self, pairs):
        self.early += pairs

    def equivalent(self, pairs):
        self.late += pairs
        return np.zeros(len(pairs), dtype=bool), Checks(len(set(pairs)))


class Letters:
    """Stands in for a codec: a token is a character."""

    def decode(self, tokens):
        return "".join(map(chr, tokens))


def test_math_verify_begins_while_others_are_sampled(monkeypatch):
    monkeypatch.setattr(rftlab.llm.training.samples, "score", score)
    texts = [r"\boxed{12}", r"\boxed{13}", "nothing", r"so $12.0$", r"\boxed{12.0}"]
    pool, truths = Listening(), ["12", "0.5"]
    tokens, starts = packed([list(map(ord, text)) for text in texts])
    responses = Responses(((1,), (2,)), np.array([0, 0, 0, 1, 1]), tokens, starts)
    rollouts = Rollouts(responses, np.zeros(len(tokens)), np.ones(5, dtype=bool))
    judge = Judge("math", Letters(), pool)
    ended = judge.early(truths)
    for i in (1, 4, 0):
        ended([(rollouts.responses.group[i], rollouts.responses.response(i))])
    assert pool.early == [("13", "12"), ("12.0", "0.5")] and pool.late == []
    samples, checks = judge.scored(rollouts, np.array([7, 8]), truths)
    assert pool.late == [("13", "12"), ("12.0", "0.5"), ("12.0", "0.5")] and checks == Checks(2)
    assert samples.strict.tolist() == samples.flexible.tolist() == [1, 0, 0, 0, 0] and samples.texts == texts
    assert Judge("gsm8k", Letters(), pool).early(truths) is ignore, "text decides, so there is nothing to begin with"
