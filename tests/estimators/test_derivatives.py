"""Every derivative against central differences of the value that the same function returns, away from kinks."""

import math

import numpy as np
import pytest

from rftlab import KL, Advantage, Estimator, Ratio
from rftlab.shared.config.surrogate import Cispo, Clip, Dro, Reinforce, Sapo, Vespo
from tests.support.checks.derivatives import CHECKS
from tests.support.estimators.vectors import REAL

# --- whole batches ---


@pytest.mark.parametrize("check", CHECKS.values(), ids=CHECKS)
def test_slopes(check):
    check(REAL)


@pytest.mark.parametrize(
    "spec", [Reinforce(), Clip(dual=3.0), Cispo(), Sapo(), Dro(), Vespo()], ids=lambda spec: type(spec).__name__
)
@pytest.mark.parametrize("advantage", [1.0, -1.0])
def test_a_log_probability_that_is_not_a_number_is_never_hidden(spec, advantage):
    """A weight of 0 in its place would let a broken policy train on in silence."""
    value, slope, _, _ = REAL.surrogate(spec, Ratio(), advantage, math.nan, math.nan)
    assert np.isnan(value) and (np.isnan(slope) or isinstance(spec, Reinforce))


@pytest.mark.parametrize("kind", ["k1", "k2", "k3", "abs"])
def test_nor_in_a_penalty(kind):
    value, slope = REAL.kl_penalty(KL(kind), math.nan, -1.0)
    assert np.isnan(value) and (np.isnan(slope) or kind == "k1")


@pytest.mark.parametrize(
    "ratio", [Ratio("sequence"), Ratio("sequence_token"), Ratio("product")], ids=lambda ratio: ratio.level
)
@pytest.mark.parametrize("spec", [Clip(), Cispo(), Sapo()], ids=lambda spec: type(spec).__name__)
def test_nor_in_a_response(spec, ratio):
    """Through a ratio that is shared it reaches every token of its response, and no other."""
    estimator = Estimator(Advantage("none"), spec, KL("none"), ratio=ratio)
    batch = REAL.prepare(estimator, np.ones(2), np.arange(2), np.array([0, 2, 4]), np.full(4, -1.0))
    found = REAL.objective_and_weights(estimator, batch, np.array([-1.0, math.nan, -1.1, -1.0]))
    assert np.isnan(found.weight[:2]).all() and np.isfinite(found.weight[2:]).all() and np.isnan(found.objective)
