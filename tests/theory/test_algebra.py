"""Estimator algebra: the contexts of T7, the bounds of a z-score's weight, its curves."""

import numpy as np
import pytest

from rftlab.studies.theory import page
from rftlab.studies.theory.algebra import SLOPE, P
from rftlab.studies.theory.models import zscore_factor


def test_the_two_contexts_have_the_stated_logits():
    step = 1e-6
    ahead, behind = (1 / (1 + np.exp(-np.array([theta, -4.5 * theta - np.log(19)]))) for theta in (step, -step))
    np.testing.assert_allclose((ahead + behind) / 2, P, atol=1e-9)
    np.testing.assert_allclose((ahead - behind) / (2 * step), SLOPE * P * (1 - P), rtol=1e-8)


def test_grpo_weight_bounds_hold_and_are_not_loose():
    p = np.geomspace(1e-4, 0.5, 200)
    for size in (2, 3, 5, 16):
        bound = np.minimum(np.sqrt(size - 1), np.sqrt((size - 1) / (size * p * (1 - p))))
        ratio = zscore_factor(size, p, 0) / bound
        assert ratio.max() <= 1 + 1e-12 and ratio.min() > 0.75


def test_weight_curves():
    _, table = page.weights_figure()
    assert list(table.columns) == ["K", "p", "W"] and list(table["K"].unique()) == ["2", "4", "8", "∞"]
    flat, infinite = (table[table["K"] == k].set_index("p")["W"] for k in ("2", "∞"))
    np.testing.assert_allclose(flat, np.sqrt(0.5))
    np.testing.assert_allclose(infinite, 1 / np.sqrt(infinite.index * (1 - infinite.index)))
    assert table.loc[(table["K"] == "8") & (table["p"] == 0.5), "W"].item() == pytest.approx(1.73581, abs=1e-5)
