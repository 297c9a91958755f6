"""Decimals that statements of the theory print, from the formulas."""

import numpy as np
import pytest
from scipy import stats
from scipy.optimize import brentq

from rftlab.shared.evalstats import sampling_error
from rftlab.studies.data.results.stats import expected_maximum, winners_curse
from rftlab.studies.theory.dynamics import beta_moment, spike
from rftlab.studies.theory.models import one_correct
from rftlab.studies.theory.variance import normal_seeds, plug_in
from tests.support.theory import expected

OF_CHECKS = [
    ("T4", "W(.05)/W(.5), K=4", "1.058"),
    ("T4", "W(.05)/W(.5), K=8", "1.333"),
    ("T7", "dJ/dtheta", "0.0363"),
    ("T7", "step of GRPO, K=4", "0.0333"),
    ("T7", "step of GRPO, K=8", "-0.0605"),
    ("T7", "step of GRPO, K=64", "-0.427"),
    ("T7", "step of GRPO, K -> inf", "-0.481"),
    ("T10", "b*, one correct arm of 2, p=0.1", "0.9"),
    ("T11", "V without baseline, p=0.7", "0.0189"),
    ("T11", "V of the value baseline, p=0.7", "0.0336"),
    ("T11", "V of ReMax, p=0.7", "0.1029"),
    ("T23", "raw, β = .3", "0.875"),
    ("T23", "k3, β = 0.3", "0.777"),
    *(("T28", f"worst R/√T, M = {m}, T = 1e12", r) for m, r in enumerate(("50", "26.3", "9.2", "5.9", "4.9"), 2)),
]


def survey_baseline() -> float:
    """E[r|s|²]/E[r] with one correct arm of two at p = .1."""
    policy = one_correct(2, 0.1)
    return (policy.probs * policy.correct) @ (policy.scores**2).sum(axis=1) / policy.pass_rate


PRINTED = {
    "T10 of a survey": (survey_baseline, "1.62"),
    "T22 spike": (lambda: 0.1 / np.sqrt(0.001) / (1 - 0.9 / np.sqrt(0.999)), "31.77"),
    "T22 first spike": (lambda: spike("adam", 1), "6.01"),
    "T23 where k3 is held at 10": (lambda: np.exp(-brentq(lambda x: np.exp(x) - x - 1 - 10, 1, 5)), "0.0735"),
    "T25 bimodal": (lambda: beta_moment(0.005, 0.015, 1, 1), "0.00368"),
    "T25 spread": (lambda: beta_moment(0.5, 1.5, 1, 1), "0.125"),
    "T25 alike": (lambda: beta_moment(25, 75, 1, 1), "0.18564"),
    "T25 times": (lambda: beta_moment(25, 75, 1, 1) / beta_moment(0.005, 0.015, 1, 1), "50"),
    "S1 at .5": (lambda: sampling_error(0.5, 1319), "0.0138"),
    "S1 difference": (lambda: np.sqrt(2) * sampling_error(0.5, 1319), "0.0195"),
    "S2 plug-in": (lambda: stats.binom.pmf(np.arange(9), 8, 0.1) @ plug_in(8, np.arange(9), 4), "0.2928"),
    "S3 constant": (lambda: (stats.norm.ppf(0.975) + stats.norm.ppf(0.8)) ** 2, "7.85"),
    "S3 normal, paired": (lambda: normal_seeds(0.02, 0.02, True), "8.0"),
    **{f"S4 c = {c}": (lambda c=c: expected_maximum(c), text)
       for c, text in ((5, "1.163"), (9, "1.485"), (10, "1.539"), (15, "1.736"))},
    "S4 nine cells": (lambda: winners_curse(9, 0.0137), "0.020"),
    **{f"{check} {name}": (lambda a=check, b=name: expected(a)[b], text) for check, name, text in OF_CHECKS},
}  # fmt: skip


@pytest.mark.parametrize("name", PRINTED)
def test_printed_decimals(name):
    """To half a unit of the last digit."""
    value, printed = PRINTED[name]
    assert value() == pytest.approx(float(printed), rel=0, abs=1.001 * 0.5 * 10.0 ** -len(printed.partition(".")[2]))
