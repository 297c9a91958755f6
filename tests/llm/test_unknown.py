"""A choice that no kernel computes is an error in the trainer and on tensors too (tests/estimators/test_unknown.py has
the rest)."""

import pytest

torch = pytest.importorskip("torch")

# ruff: noqa: E402 (what needs torch is imported where there is one)
import rftlab as rl
from rftlab.llm.train import train
from tests.support.estimators.unknown import CASES, planted
from tests.support.trainer.tiny_runs import one_cache, run_of  # noqa: F401


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
