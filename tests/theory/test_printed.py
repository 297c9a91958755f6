"""Decimals that pages and papers print, from the formulas."""

import numpy as np
import pytest
from scipy import stats
from scipy.special import expit, logit

from rftlab.shared.evalstats import sampling_error
from rftlab.studies.data.results.stats import expected_maximum, seeds_needed, winners_curse
from rftlab.studies.theory.dynamics import (
    beta_moment,
    fixed_point,
    forward_kl_point,
    grpo_clock,
    grpo_time,
    spike,
    with_kl,
)
from rftlab.studies.theory.dynamics import reinforce_clock as raw_clock
from rftlab.studies.theory.models import GRPO
from rftlab.studies.theory.variance import normal_seeds, plug_in
from tests.support.theory import expected

OF_CHECKS = [
    ("T3", "W(0.05), K=8, ddof 1", "2.3133"),
    ("T3", "W(0.2), K=8, ddof 1", "1.9707"),
    ("T3", "W(0.5), K=8, ddof 1", "1.73581"),
    ("T4", "W(.05)/W(.5), K=4", "1.058"),
    ("T4", "W(.05)/W(.5), K=8", "1.333"),
    ("T5", "p=.95, K=8", "0.66342"),
    ("T5", "Beta(0.5, 1.5), K=8", "0.3928"),
    ("T5", "Beta(0.2, 0.6), K=64", "0.3610"),
    ("T6", "batch std of rewards", "0.500"),
    ("T6", "batch std of advantages", "0.3536"),
    ("T7", "dJ/dtheta", "0.0363"),
    ("T7", "step of GRPO, K=4", "0.0333"),
    ("T7", "step of GRPO, K=8", "-0.0605"),
    ("T7", "step of GRPO, K=64", "-0.427"),
    ("T7", "step of GRPO, K -> inf", "-0.481"),
    ("T16", "W, group mean, p=0.5, p_old=.1, w=7", "0.875000000"),
    ("T16", "W with std, p=0.5, p_old=.1, w=7", "2.1774"),
    ("T16", "W with std, p=.5, p_old=.5, w=7", "1.7358"),
    ("T18", "no weights, p=0.6, p_o=0.8", "0.16000000"),
    ("T18", "importance weights, p=0.6, p_o=0.8", "0.24000000"),
    ("T18", "effective share of samples, p=0.6, p_o=0.8", "0.80000000"),
    ("T18", "its bias, p=0.6, p_o=0.8", "-0.08000000"),
]
PRINTED = {
    "T19 raw": (lambda: raw_clock(0.5) - raw_clock(0.01), "108.18"),
    "T19 GRPO": (lambda: grpo_clock(0.5) - grpo_clock(0.01), "19.70"),
    "T19 natural": (lambda: logit(0.5) - logit(0.01), "4.595"),
    "T19 raw from .05": (lambda: raw_clock(0.5) - raw_clock(0.05), "24.84"),
    "T19 group mean": (lambda: 8 / 7 * (raw_clock(0.5) - raw_clock(0.05)), "28.38"),
    "T19 GRPO from .05": (lambda: grpo_time(8, 0.05), "11.93"),
    "T22 spike": (lambda: 0.1 / np.sqrt(0.001) / (1 - 0.9 / np.sqrt(0.999)), "31.77"),
    "T22 first spike": (lambda: spike("adam", 1), "6.01"),
    "T23 raw": (lambda: expit(logit(0.2) + 1 / 0.3), "0.87512341"),
    "T23 K = 2": (lambda: expit(logit(0.2) + 1 / 0.6), "0.5696375"),
    "T23 K = 8": (lambda: expit(logit(0.2) + 7 / 2.4), "0.8220608"),
    "T23 GRPO": (lambda: fixed_point(with_kl("k2", 1.0, GRPO), 8, 0.2), "0.5914324"),
    "T23 ceiling of an unbounded k3": (lambda: 1 - forward_kl_point(0.001, 0.2), "0.00080"),
    "T25 bimodal": (lambda: beta_moment(0.005, 0.015, 1), "0.00368"),
    "T25 spread": (lambda: beta_moment(0.5, 1.5, 1), "0.125000000000"),
    "T25 alike": (lambda: beta_moment(25, 75, 1), "0.18564"),
    "T25 times": (lambda: beta_moment(25, 75, 1) / beta_moment(0.005, 0.015, 1), "50"),
    "S1 at .19": (lambda: sampling_error(0.19, 1319), "0.0108"),
    "S1 at .5": (lambda: sampling_error(0.5, 1319), "0.0138"),
    "S1 difference": (lambda: np.sqrt(2) * sampling_error(0.5, 1319), "0.0195"),
    "S2 plug-in": (lambda: stats.binom.pmf(np.arange(9), 8, 0.1) @ plug_in(8, np.arange(9), 4), "0.2928"),
    "S3 .01": (lambda: seeds_needed(0.01, 0.02), "6.0"),
    "S3 .015": (lambda: seeds_needed(0.015, 0.02), "10.0"),
    "S3 .02": (lambda: seeds_needed(0.02, 0.02), "17.0"),
    "S3 .025": (lambda: seeds_needed(0.025, 0.02), "26.0"),
    "S3 constant": (lambda: (stats.norm.ppf(0.975) + stats.norm.ppf(0.8)) ** 2, "7.85"),
    "S3 normal, paired": (lambda: normal_seeds(0.02, 0.02, True), "8.0"),
    "S4 c = 5": (lambda: expected_maximum(5), "1.163"),
    "S4 c = 9": (lambda: expected_maximum(9), "1.485"),
    "S4 c = 10": (lambda: expected_maximum(10), "1.539"),
    "S4 c = 15": (lambda: expected_maximum(15), "1.736"),
    "S4 nine cells": (lambda: winners_curse(9, 0.0137), "0.020"),
}
PRINTED |= {f"{check} {name}": (lambda a=check, b=name: expected(a)[b], printed) for check, name, printed in OF_CHECKS}


@pytest.mark.parametrize("name", PRINTED)
def test_printed_decimals(name):
    """To half a unit of the last digit."""
    value, printed = PRINTED[name]
    assert value() == pytest.approx(float(printed), rel=0, abs=1.001 * 0.5 * 10.0 ** -len(printed.partition(".")[2]))
