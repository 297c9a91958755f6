"""What a pilot measures with a model: gradients against exact ones, their parts against enumeration, and the command
as a whole."""

import io
import os
import signal
from dataclasses import replace

import numpy as np
import pytest
import torch
from rich.console import Console

import rftlab.llm.rewards.verify
import rftlab.llm.training.samples
from rftlab import UserError, train
from rftlab.llm.probe import CENTRED, RAW, number_answers, probe, probe_trained, products
from rftlab.llm.probe_config import BLOCKS, ProbeConfig
from rftlab.llm.training.checkpoint import prune
from rftlab.studies.data.paper.pairs import PAIRS, Pair
from rftlab.studies.data.runs import store
from rftlab.studies.data.runs.runner import collect
from rftlab.studies.forecast.pilot import run as pilot_run
from rftlab.studies.forecast.pilot import store as pilot_store
from rftlab.studies.forecast.pilot.pilot import Base, pilot_from
from rftlab.studies.forecast.pilot.run import base_from, pilot, summarize_headroom, wanted
from rftlab.studies.forecast.pilot.store import pilot_path, read_pilot
from tests.support.trainer.tiny_models import VOCABULARY, exact_norms, random_responses, small_policy  # noqa: F401
from tests.support.trainer.tiny_runs import one_cache, run_of  # noqa: F401

SMALL = ProbeConfig(train_questions=16, test_questions=8, samples=4, many_samples=10)


def exact(policy, responses, weights):
    """sum_k w_k grad log pi(response k) / K by autograd, response by response, through the logits of the model."""
    total = 0.0
    for row in range(len(responses.group)):
        prompt, response = responses.prompts[responses.group[row]], responses.response(row)
        ids = torch.tensor([[*prompt, *response]])
        logp = torch.log_softmax(policy.model(input_ids=ids).logits[0] / policy.temperature, -1)
        at = torch.arange(len(prompt) - 1, len(prompt) + len(response) - 1)
        total = total + weights[row] * logp[at, ids[0, at + 1]].sum()
    parameters = [parameter for _, parameter in policy.named_parameters()]
    found = torch.autograd.grad(total / len(responses.group), parameters, allow_unused=True, materialize_grads=True)
    return torch.cat([each.flatten() for each in found])


def tensor_weights(estimator, rewards):
    if estimator is RAW:
        return rewards
    return rewards - (rewards.sum() - rewards) / (len(rewards) - 1)


@pytest.mark.parametrize("estimator", [RAW, CENTRED])
def test_products_are_those_of_the_gradients_of_halves(estimator, exact_norms):
    """By autograd of the objective; tests/studies/forecast/test_headroom.py holds what is estimated from products."""
    policy, told = small_policy(dtype=torch.float64, temperature=0.7), []
    responses = random_responses(1, groups=17, rollouts=6)
    rewards = np.random.default_rng(0).integers(0, 2, 17 * 6).astype(float)
    rewards[:12] = [0] * 6 + [1] * 6  # groups that agree
    halves = np.empty((17, 2, sum(p.numel() for _, p in policy.named_parameters())))
    for g in range(17):
        for h in (0, 1):
            rows = np.flatnonzero(responses.group == g)[h::2]
            halves[g, h] = exact(policy, responses.take(rows), tensor_weights(estimator, rewards[rows])).numpy()
    found, means = products(policy, estimator, responses, rewards, told.append), halves.mean(axis=1)
    np.testing.assert_allclose(found.squares, (means**2).sum(axis=1), rtol=1e-10, atol=1e-25)
    apart = ((halves[:, 0] - halves[:, 1]) ** 2).sum(axis=1)
    np.testing.assert_allclose(found.differences, apart, rtol=1e-10, atol=1e-25)
    sums = np.array([means[found.block == b].sum(axis=0) for b in range(BLOCKS)])
    np.testing.assert_allclose(found.gram, sums @ sums.T, rtol=1e-10, atol=1e-18)
    assert found.group == 3 and sum(told) == 17 and found.squares.max() > 0
    assert all(parameter.grad is None for _, parameter in policy.named_parameters())
    assert found.squares[0] == 0 and (found.squares[1] == 0) == (estimator is CENTRED)


def test_a_probe_is_repeatable_and_whole():
    run, told = run_of(), []
    first, again = (probe(run, SMALL, lambda done, total: told.append((done, total))) for _ in range(2))
    asked = 16 * 3 + 8 * (1 + 4 + 1)  # train thrice; test, at four other temperatures, and many times
    assert told[-1] == (asked, asked)
    assert [done for done, _ in told[: len(told) // 2]] == sorted(done for done, _ in told[: len(told) // 2])
    for name, available, n in (("train", 30, 16), ("test", 20, 8)):
        a, b = getattr(first, name), getattr(again, name)
        assert a.available == available and a.strict.shape == a.well_formed.shape == a.lengths.shape == (n, 4)
        assert all(np.array_equal(x, y) for x, y in zip(a[1:-1], b[1:-1], strict=True))
        assert (a.lengths >= 1).all() and (a.lengths[~a.finished] == 12).all() and a.flexible.sum() > a.strict.sum() > 0
    for name in ("raw", "centred"):
        assert np.array_equal(getattr(first, name).gram, getattr(again, name).gram)
    assert first.raw.squares.max() > 0
    other = probe(replace(run, seed=1), SMALL)
    assert not np.array_equal(other.train.lengths, first.train.lengths)


def test_a_bar_moves_as_responses_are_sampled(monkeypatch):
    """Not as questions are: one that gets many responses would stand for minutes, and fill the memory."""
    ask = replace(SMALL, temperatures=(), many_questions=4)
    whole = probe(run_of(), ask)
    monkeypatch.setattr("rftlab.llm.probe.AT_ONCE", 12)
    steps = []
    parts = probe(run_of(), ask, lambda done, total: steps.append(done))
    alone = np.diff([0, *steps]).tolist()
    assert alone == [3] * 5 + [1] + [3, 3, 2] + [2, 2] + [1] * 32  # 4 to each of 16 and 8 questions, 6 to each of 4
    np.testing.assert_array_equal(parts.train.strict, whole.train.strict)
    np.testing.assert_array_equal(parts.headroom.many, whole.headroom.many)


def test_other_temperatures_and_many_tries_are_of_the_same_questions():
    run = replace(run_of(), temperature=0.7)
    ask = replace(SMALL, temperature_questions=5, many_questions=3, many_samples=10)
    found, again = (probe(run, ask) for _ in range(2))
    headroom, test = found.headroom, found.test
    assert list(headroom.right) == [1.0, 0.7, 0.5, 0.3, 0.0] and headroom.questions.shape == (5,)
    assert [table.shape for table in headroom.right.values()] == [(5, 4)] * 4 + [(5, 1)]
    np.testing.assert_array_equal(headroom.right[0.7], test.strict[headroom.questions])  # nothing is asked twice
    np.testing.assert_array_equal(headroom.many[:, :4], test.strict[headroom.many_questions])
    assert headroom.many.shape == headroom.many_answers.shape == (3, 10)
    assert headroom.rollouts == 5 * (3 * 4 + 1) + 3 * 6 == sum(ask.rollouts(0.7, 30, 20).values()) - 16 * 4 - 8 * 4
    for name in ("many", "many_answers", "questions"):
        np.testing.assert_array_equal(getattr(headroom, name), getattr(again.headroom, name))
    assert ((test.answers >= 0) == test.well_formed).all()
    alone = probe(run, replace(ask, temperatures=(), many_questions=0))
    np.testing.assert_array_equal(alone.test.lengths, test.lengths)
    assert alone.headroom.right == {}
    assert alone.headroom.many.size == alone.headroom.rollouts == alone.headroom.tokens == 0
    assert summarize_headroom(alone).temperatures == () and summarize_headroom(alone).tries[-1].at == 4


def test_answers_of_a_question_are_numbered_as_they_appear():
    texts = np.array([["####5", "x", "####6", "1####5"], ["", "####7", "####7", "####07"]], dtype=object)
    assert number_answers("arithmetic", texts).tolist() == [[0, -1, 1, 0], [-1, 0, 0, 1]]


def test_all_questions_are_asked_where_there_are_fewer_and_too_few_are_named():
    found = probe(run_of(), ProbeConfig(train_questions=500, test_questions=500, samples=4))
    assert len(found.train.strict) == 30 and len(found.test.strict) == 20
    run = run_of(batch_size=4)
    small = replace(run, task=replace(run.task, sizes=replace(run.task.sizes, train=15)))
    with pytest.raises(UserError, match="the training split has 15 questions; allowed: 16 or more"):
        probe(small, SMALL)


CELL = "32x1-minimalist"


def told(mini, folder):
    """The pilot in a folder, and what its command prints."""
    console = Console(file=io.StringIO(), width=300)
    return pilot(console, mini, folder, 1, quiet=True), console.file.getvalue()


@pytest.fixture
def mini(one_cache, monkeypatch):
    """A pair whose pilot takes seconds. Processes of their own know nothing of this one's patches."""
    monkeypatch.setattr(rftlab.llm.training.samples, "score", rftlab.llm.rewards.verify.score)
    run = run_of(rounds=4, eval_every=2, threads=1)
    run = replace(run, task=replace(run.task, sizes=replace(run.task.sizes, train=40)))
    monkeypatch.setitem(PAIRS, "mini", Pair("tiny", "mix97", llm=run))
    return wanted("mini", (CELL,), None, SMALL)


def killed(connection, *what):
    """What a process does that the system kills."""
    os.kill(os.getpid(), signal.SIGKILL)


def here(console, title, quiet, work, *arguments):
    """The work of a process, in this one: a start takes as long as all that is measured."""
    return work(lambda *what: None, *arguments)


def test_a_pilot_is_measured_once_and_again_where_its_files_are_damaged(mini, tmp_path, monkeypatch):
    once = [pilot_run.in_a_process]  # one start of a process, which must hand on what it measured
    monkeypatch.setattr(pilot_run, "in_a_process", lambda *what: (once.pop() if once else here)(*what))
    found, _ = told(mini, tmp_path)
    (point,), (run,) = mini.points(), found.runs
    curves = collect(tmp_path, [point]).curves
    assert run.curve.round.tolist() == [0, 2, 4] and run.curve.tokens.tolist() == curves["tokens"].tolist()
    assert (run.train_questions, run.test_questions, run.evaluated) == (40, 20, 3 * 60 * 2)
    assert found.base.n_train == 40 and found.base.spent["train"].rollouts == 64 and found.base.raw.group == 2
    again = base_from("mini", probe(point.run, SMALL))  # of another design: the base model is the same
    assert again.train.well_formed.tolist() == found.base.train.well_formed.tolist() and again.raw == found.base.raw
    assert repr(pilot_from(curves, found.base, (CELL,))) == repr(found) == repr(read_pilot(tmp_path, "mini"))

    with monkeypatch.context() as patched:
        patched.setattr(pilot_run, "in_a_process", lambda *what: pytest.fail("a model is measured again"))
        with patched.context() as inner:
            inner.setattr(pilot_run, "finish_points", lambda *what: pytest.fail("the store is looked at"))
            assert repr(told(mini, tmp_path)[0]) == repr(found)
        pilot_path(tmp_path, "mini").write_text("{")
        after, printed = told(mini, tmp_path)
        assert repr(after) == repr(found) and "damaged, redone" in printed and "pilot.json" in printed

    for name in ("pilot", "base"):
        pilot_path(tmp_path, "mini", name).write_text("{")
    sealed = (store.point_folder(tmp_path, point) / "done.json").stat().st_mtime_ns
    after, printed = told(mini, tmp_path)
    assert "base.json" in printed and after.base.raw == found.base.raw
    assert (store.point_folder(tmp_path, point) / "done.json").stat().st_mtime_ns == sealed  # the run was not run again


def test_a_killed_probe_is_named_and_leaves_nothing(mini, tmp_path, monkeypatch):
    monkeypatch.setattr(pilot_run, "_work", killed)
    with pytest.raises(UserError, match="base model ended with status -9; run the same command again"):
        told(mini, tmp_path)
    assert not pilot_path(tmp_path, "mini", "base").exists()


def test_what_was_measured_before_a_kill_is_not_measured_again(mini, tmp_path, monkeypatch):
    asked, whole = [], pilot_run.in_a_process

    def listening(console, title, *what):
        asked.append(title)
        return (whole if len(asked) == 3 else here)(console, title, *what)

    monkeypatch.setattr(pilot_run, "_work", killed)
    monkeypatch.setattr(pilot_run, "in_a_process", listening)
    with pytest.raises(UserError, match="ended with status -9"):
        told(mini, tmp_path)
    training, gradients = (f"half way through the baseline's run{what}" for what in (": training", ""))
    assert asked == ["base model", training, gradients]
    base = pilot_store.read_measurements(pilot_path(tmp_path, "mini", "base"), Base)
    folder = tmp_path / "pilot" / "mini" / "midway"
    assert base.midway is None and (folder / "checkpoints" / "000002").is_dir()
    found, _ = told(mini, tmp_path)
    assert asked[3:] == [training, gradients] and not folder.exists()
    assert found.base._replace(midway=None).raw == base.raw and found.base.midway.round == 2
    assert found.base.midway.spent["half a run"].rollouts == 2 * 32
    without, _ = told(mini._replace(midway=False), tmp_path)
    assert asked[5:] == [] and without.base.midway is None and read_pilot(tmp_path, "mini").base.midway is None


def test_a_model_that_learnt_nothing_has_the_gradients_of_its_base(one_cache, tmp_path):
    run = run_of(rounds=2, eval_every=2)
    still = replace(run, optimizer=replace(run.optimizer, learning_rate=1e-30))
    train(still, tmp_path / "still")
    base, found = probe(still, SMALL), probe_trained(still, tmp_path / "still", SMALL)
    for mine, its in ((found.raw, base.raw), (found.centred, base.centred)):
        for name in ("block", "gram", "squares", "differences"):
            np.testing.assert_array_equal(getattr(mine, name), getattr(its, name))
    assert base.raw.squares.any() and found.rollouts == 16 * 4 and found.tokens == base.train.lengths.sum()
    train(run, tmp_path / "run")
    assert (probe_trained(run, tmp_path / "run", SMALL).raw.squares != base.raw.squares).any()


def test_a_run_whose_weights_went_has_no_gradients(mini, tmp_path):
    train(mini.midway_run(), tmp_path / "run")
    prune(tmp_path / "run")
    with pytest.raises(UserError, match="has no weights: a study drops those of finished runs"):
        probe_trained(mini.midway_run(), tmp_path / "run", SMALL)


def test_bad_input_of_a_probe_is_one_line(mini, tmp_path, monkeypatch):
    broken = replace(PAIRS["mini"].llm, compute=replace(PAIRS["mini"].llm.compute, device="cuda:99"))
    monkeypatch.setitem(PAIRS, "mini", Pair("tiny", "mix97", llm=broken))
    with pytest.raises(UserError, match=r"compute\.device = 'cuda:99'"):
        told(mini, tmp_path)
