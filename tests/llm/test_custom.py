"""Custom functions in the trainer and on tensors, and choices that no kernel computes, which are errors there too
(tests/estimators/test_unknown.py has the rest)."""

from dataclasses import replace

import numpy as np
import pytest
import torch

import rftlab as rl
from rftlab.llm.config import model_config
from rftlab.llm.train import train
from tests.support.estimators.custom_cards import shipped_alone  # noqa: F401
from tests.support.estimators.unknown import CASES, planted
from tests.support.trainer.tiny_runs import one_cache, run_of, same  # noqa: F401


def clipped(advantage, logp, old_logp):
    ratio = np.exp(logp - old_logp)
    held = advantage * np.clip(ratio, 0.8, 1.2)
    return np.minimum(advantage * ratio, held), np.where(held < advantage * ratio, 0.0, advantage * ratio)


def test_the_trainer_runs_them_like_its_own(tmp_path):
    rl.advantage("mine", surrogate=rl.Clip())(lambda rewards, pool: rewards - pool.mean())
    rl.surrogate("held", advantage=rl.Advantage("group_mean"))(clipped)
    shipped = rl.Estimator(rl.Advantage("group_mean"))
    ran = {
        name: train(run_of(rounds=4, minibatches=2, estimator=estimator), tmp_path / name)
        for name, estimator in (("a", shipped), ("b", rl.preset("mine")), ("c", rl.preset("held")))
    }
    for name in "bc":
        assert len(ran[name].curve.round) == len(ran["a"].curve.round)
        np.testing.assert_allclose(ran[name].curve.reward, ran["a"].curve.reward)
        np.testing.assert_allclose(ran[name].curve.grad_norm[1:], ran["a"].curve.grad_norm[1:], rtol=1e-4)
    assert model_config(run_of(estimator=rl.preset("mine"))) != model_config(run_of(estimator=shipped))


def test_what_fails_names_round_and_group_and_the_run_goes_on(tmp_path):
    state = {"calls": 0, "fails": True}

    def fickle(rewards):
        state["calls"] += 1
        late = state["calls"] > 30 and state["fails"]
        return rewards[:1] if late else (rewards - rewards.mean()) * (1 + 1e-12 * rewards.size)

    rl.advantage("fickle")(fickle)
    run = run_of(rounds=8, eval_every=2, estimator=replace(rl.preset("fickle"), kl=rl.KL("k1", 0.01, place="reward")))
    with pytest.raises(rl.UserError, match=r"advantage fickle: round \d, group \d: returned shape \(1,\); allowed"):
        train(run, tmp_path / "a")
    state["fails"] = False
    assert same(train(run, tmp_path / "a"), train(run, tmp_path / "b"))


def test_tensors_take_them_too():
    """The same objective and gradient as the compiled estimator of that formula, padded, in bfloat16 too."""
    rl.advantage("mine", surrogate=rl.Clip(0.1, 0.1))(lambda rewards, pool: rewards - pool.mean())
    rl.surrogate("held", advantage=rl.Advantage("group_mean"))(clipped)
    rng = np.random.default_rng(0)
    shipped = {"mine": rl.Estimator(rl.Advantage("group_mean"), rl.Clip(0.1, 0.1))}
    shipped["held"] = rl.Estimator(rl.Advantage("group_mean"))
    for dtype in (torch.float64, torch.bfloat16):
        old = -torch.from_numpy(rng.exponential(1.0, (8, 5))).to(dtype)
        logp = (old + 0.3 * torch.from_numpy(rng.normal(size=(8, 5)))).to(dtype)
        mask = torch.arange(5) < torch.from_numpy(rng.integers(1, 6, (8, 1)))
        old[~mask] = torch.nan
        rewards, group = torch.from_numpy(rng.integers(0, 2, 8)), torch.arange(8) % 2
        for name, same_formula in shipped.items():
            leaves = [logp.clone().requires_grad_() for _ in range(2)]
            for leaf, estimator in zip(leaves, (name, same_formula), strict=True):
                rl.losses.objective(leaf, old, rewards, mask, group, estimator=estimator).backward()
            assert torch.allclose(leaves[0].grad, leaves[1].grad, rtol=1e-2 if dtype == torch.bfloat16 else 1e-9)
            with pytest.raises(rl.UserError, match="needs group"):
                rl.losses.objective(logp, old, rewards, mask, estimator=name)


def on_tensors(estimator, folder):
    logp = -torch.arange(40.0).reshape(8, 5) / 40
    rest = {"sampler_logp": logp - 0.1} if estimator.correction.kind != "none" else {}
    arguments = (logp, torch.arange(8) % 3 % 2, torch.ones(8, 5), torch.arange(8) // 4)
    rl.losses.objective(logp + 0.1, *arguments, ref_logp=logp - 0.1, estimator=estimator, **rest)


def trained(estimator, folder):
    train(run_of(rounds=1, eval_every=1, estimator=estimator), folder)


@pytest.mark.parametrize("path", [on_tensors, trained])
@pytest.mark.parametrize(("part", "listed", "field", "as_code"), CASES)
def test_an_unknown_choice_is_refused(part, listed, field, as_code, path, monkeypatch, tmp_path):
    with pytest.raises(rl.UserError, match=r"that no kernel computes|unknown"):
        path(planted(part, listed, field, as_code, monkeypatch), tmp_path)
