"""Shares, corrections, masks, surrogates, penalties and the whole way from rewards to weights against their slow
twins, to 1e-12."""

import math

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from rftlab.shared.config.kl import KL
from rftlab.shared.config.ratio import Ratio
from tests.support.checks.naive_objective import CHECKS, SPECS, check_token_kl, check_token_surrogate, kinks
from tests.support.estimators.vectors import REAL

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
