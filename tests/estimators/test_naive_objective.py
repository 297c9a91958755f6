"""Shares, corrections, masks, surrogates, penalties and the whole way from rewards to weights against their slow
twins, to 1e-12."""

import math

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from rftlab.shared.config.kl import KL
from rftlab.shared.config.mask import TopEntropy
from rftlab.shared.config.ratio import Ratio
from rftlab.shared.plumbing.errors import UserError
from tests.support.checks.naive_objective import CHECKS, SPECS, check_token_kl, check_token_surrogate, kinks
from tests.support.estimators.vectors import REAL, no_kl

# --- whole batches ---


@pytest.mark.parametrize("check", CHECKS.values(), ids=CHECKS)
def test_twin(check):
    check(REAL)


@given(
    spec=SPECS,
    advantage=st.floats(-9, 9, allow_subnormal=False),
    old_logp=st.floats(-30, 0),
    log_ratio=st.floats(-25, 25),
)
def test_surrogate_of_any_token(spec, advantage, old_logp, log_ratio):
    logp = old_logp + log_ratio
    ratio = math.exp(logp - old_logp)
    assume(all(abs(ratio - kink) > 1e-9 * kink for kink in kinks(spec) if kink > 0) and abs(advantage) > 1e-9)
    check_token_surrogate(REAL, spec, Ratio(), advantage, logp, old_logp)


@given(
    spec=st.builds(
        KL,
        kind=st.sampled_from(["none", "k1", "k2", "k3", "abs"]),
        straight_through=st.booleans(),
        bounded=st.booleans(),
    ),
    ref_logp=st.floats(-30, 0),
    d=st.floats(-25, 25),
)
def test_kl_of_any_token(spec, ref_logp, d):
    logp = ref_logp + d
    u = min(max(ref_logp - logp, -20.0), 20.0)
    assume(abs(math.exp(u) - u - 11.0) > 1e-9)
    check_token_kl(REAL, spec, logp, ref_logp)


@pytest.mark.parametrize(("fraction", "kept"), [(0.2, [0, 2, 11]), (0.5, [0, 1, 2, 8, 9, 11])])
def test_top_entropy_keeps_what_trl_keeps(fraction, kept):
    """`GRPOTrainer.get_high_entropy_mask` of TRL 1.16.0, threshold 1 - fraction, on rows of 5, 3 and 4 tokens."""
    entropies = [1.99, 0.75, 1.3, 0.53, 0.03, 0.43, 0.64, 0.12, 1.09, 1.17, 0.23, 2.18]
    estimator, logp = no_kl(mask=TopEntropy(fraction)), -np.ones(12)
    batch = REAL.batch_from_advantages(estimator, np.ones(12), np.array([0, 5, 8, 12]), logp)
    assert np.flatnonzero(REAL.apply_mask(estimator, batch, logp, np.array(entropies)).share).tolist() == kept
    with pytest.raises(UserError, match="TopEntropy needs keys, the entropy of each token"):
        REAL.apply_mask(estimator, batch, logp)
