"""Equations that hold whatever the numbers are: of advantages, of objectives, of batches; and presets."""

import pytest

from rftlab import KL, Advantage, Aggregation, Estimator
from rftlab.shared.cards import PRESETS
from rftlab.shared.config.surrogate import Clip, Reinforce
from tests.support.checks import identities, identities_advantages, identities_objective
from tests.support.estimators.vectors import REAL

CHECKS = identities.CHECKS | identities_advantages.CHECKS | identities_objective.CHECKS


@pytest.mark.parametrize("check", CHECKS.values(), ids=CHECKS)
def test_identity(check):
    check(REAL)


def test_presets_are_what_their_papers_say():
    """A preset that is changed by accident would change every table that names it."""
    clip, k3 = Clip(0.2, 0.2), KL("k3", 0.001)
    zscore = Advantage("group_mean", "group_std", ddof=1, eps=1e-6, singleton="raw")
    expected = {
        "minimalist": Estimator(Advantage("none"), clip, k3, Aggregation("seq_mean_token_sum")),
        "grpo": Estimator(zscore, clip, KL("k3", 0.04), Aggregation("seq_mean_token_mean")),
        "dr_grpo": Estimator(Advantage("group_mean"), clip, KL("none"), Aggregation("seq_mean_token_sum", length=1024)),
        "rloo": Estimator(Advantage("leave_one_out"), Reinforce(), KL("none"), Aggregation("seq_mean_token_sum")),
        "paper_text": Estimator(zscore, clip, k3, Aggregation("seq_mean_token_sum")),
        "paper_code": Estimator(zscore, Clip(0.2, 0.2, 3.0), k3, Aggregation("micro_batch_token_mean", micro_batch=4)),
    }
    assert {name: PRESETS[name] for name in expected} == expected
