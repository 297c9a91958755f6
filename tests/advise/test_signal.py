"""Zero-variance groups, effective batches, tries, prompts worth dropping: closed forms, simulation and theory."""

import json
import statistics
from pathlib import Path

import numpy as np
import pytest
from scipy.special import beta as beta_function

from rftlab.shared.config.advantage import Advantage
from rftlab.studies.forecast.pilot.headroom import measure_silence
from rftlab.studies.forecast.pilot.passrates import BetaBinomial, beta_binomial, nonparametric, zero_inflated
from rftlab.studies.forecast.pilot.store import shipped_base
from rftlab.studies.forecast.signal import signal
from rftlab.studies.forecast.signal.signal import exactly, expected_tries, fit_rates, read_rates, zero_variance_share
from rftlab.studies.theory.algebra import silent_chance
from rftlab.studies.theory.models import beta_rates, reinforce_with
from tests.support.machine.here import refused, shown

SIZES = (1, 2, 3, 8, 64)


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize(("a", "b"), [(0.5, 1.5), (0.2, 0.6), (3.0, 2.0)])
def test_the_silent_share_of_a_beta_is_that_of_the_theory(a, b, size):
    """T5: the closed form, and the advantages of groups by their number of successes."""
    share = zero_variance_share(BetaBinomial(a, b), size)
    closed = (beta_function(a + size, b) + beta_function(a, b + size)) / beta_function(a, b)
    assert share == pytest.approx(min(1.0, closed), rel=1e-10)
    rates = beta_rates(a, b)
    if size > 1:  # a group of one keeps its raw reward there
        silent = silent_chance(reinforce_with(Advantage("group_mean", "group_std")), size, rates.values)
        assert share == pytest.approx(float(rates.chances @ silent), rel=1e-8)


def test_a_share_at_zero_is_silent_and_a_beta_has_the_mean_and_spread_that_are_given():
    inner = zero_variance_share(BetaBinomial(1.0, 2.0), 8)
    assert zero_variance_share(BetaBinomial(1.0, 2.0, 0.3), 8) == pytest.approx(0.3 + 0.7 * inner)
    beta = signal.match_beta(0.3, 0.2)
    assert (beta.mean, beta.variance) == pytest.approx((0.3, 0.04))


@pytest.mark.parametrize("spread", [0.0, 1e-12, 1e-6, 1e-3])
def test_a_narrow_beta_is_as_questions_that_are_alike(spread):
    assert zero_variance_share(signal.match_beta(0.3, spread), 8) == pytest.approx(0.3**8 + 0.7**8, rel=1e-3)


@pytest.mark.parametrize("fit", [beta_binomial, nonparametric])
def test_fits_find_the_silent_share_that_the_histogram_of_counts_misses(fit):
    rng, m, size = np.random.default_rng(1), 4, 8
    truth = BetaBinomial(1.2, 2.5)
    counts = rng.binomial(m, rng.beta(truth.a, truth.b, 4000))
    expected = zero_variance_share(truth, size)
    assert zero_variance_share(fit(counts, m), size) == pytest.approx(expected, abs=0.03)
    assert zero_variance_share(exactly(counts / m), size) > expected + 0.1  # rates of four responses are too wide


@pytest.mark.parametrize("size", [2, 4, 8])
def test_the_share_from_counts_alone_has_no_bias(size):
    """Over repeated experiments with a distribution that is no Beta."""
    rng, m, rates = np.random.default_rng(2), 8, np.array([0.0, 0.1, 0.5, 0.97])
    expected = float((rates**size + (1 - rates) ** size).mean())
    result = [measure_silence(rng.binomial(m, np.tile(rates, 50)), m, size) for _ in range(400)]
    values = np.array([one.value for one in result])
    assert abs(values.mean() - expected) < 4 * values.std() / 20
    plugged = np.mean([(c**size + (1 - c) ** size).mean() for c in rng.binomial(m, np.tile(rates, 50), (400, 200)) / m])
    assert abs(plugged - expected) > 10 * values.std() / 20  # the mutant: rates put into the formula
    assert measure_silence(np.array([1, 2]), m, m + 1) is None


def test_its_error_by_hand():
    """Of 4 responses, pairs that agree are 6, 3, 2 and 6 of 6."""
    few = measure_silence(np.array([4, 1, 2, 0]), 4, 2)
    assert (few.value, few.error) == pytest.approx((17 / 24, statistics.stdev([1, 1 / 2, 1 / 3, 1]) / 2))


@pytest.mark.parametrize(("batch", "silent"), [(1, 0.5), (8, 0.3), (32, 0.2), (32, 0.9), (100, 0.01)])
def test_the_tries_are_those_of_a_simulation(batch, silent):
    rng, tries = np.random.default_rng(4), []
    for _ in range(6000):
        have, count = 0, 0
        while have < batch:
            have, count = have + rng.binomial(batch, 1 - silent), count + 1
        tries.append(count)
    expected, likely = expected_tries(batch, silent)
    assert expected == pytest.approx(np.mean(tries), abs=5 * np.std(tries) / 77 + 1e-9)
    assert np.mean(np.array(tries) <= likely) >= 0.94 and np.mean(np.array(tries) < likely) <= 0.96
    assert batch / (1 - silent) <= batch * expected + 1e-9
    assert expected_tries(batch, 1.0) == (np.inf, np.inf) and expected_tries(batch, 0.0) == (1.0, 1.0)


@pytest.mark.parametrize("fit", [beta_binomial, nonparametric])
@pytest.mark.parametrize("right", [0, 6])
def test_the_posterior_of_a_count_is_that_of_simulated_questions(fit, right):
    rng, m, size, n = np.random.default_rng(5), 6, 4, 200_000
    rates = np.where(rng.random(n) < 0.2, 0.0, rng.beta(1.0, 1.5, n))
    counts = rng.binomial(m, rates)
    mine = rates[counts == right]
    after = signal.posterior(fit(counts, m), m, right)
    assert after.mean == pytest.approx(mine.mean(), abs=0.02)
    assert zero_variance_share(after, size) == pytest.approx((mine**size + (1 - mine) ** size).mean(), abs=0.04)


def test_posteriors_average_to_the_prior():
    prior, m = BetaBinomial(0.7, 1.9, 0.25), 5
    parts = [signal.posterior(prior, m, right) for right in range(m + 1)]
    chances = zero_inflated(m, prior.a, prior.b, prior.zero)
    assert chances.sum() == pytest.approx(1)
    assert chances @ [part.mean for part in parts] == pytest.approx(prior.mean)
    assert chances @ [zero_variance_share(part, 8) for part in parts] == pytest.approx(zero_variance_share(prior, 8))


MUTANTS = {
    "right alone": lambda p, k: (p**k).mean(),
    "of the mean": lambda p, k: p.mean() ** k + (1 - p.mean()) ** k,
    "of one response less": lambda p, k: (p ** (k - 1) + (1 - p) ** (k - 1)).mean(),
}


@pytest.mark.parametrize("name", MUTANTS)
def test_a_wrong_share_would_be_seen(name):
    rates = np.random.default_rng(8).beta(0.5, 1.5, 100_000)
    expected = zero_variance_share(BetaBinomial(0.5, 1.5), 8)
    assert (rates**8 + (1 - rates) ** 8).mean() == pytest.approx(expected, abs=0.005)
    assert abs(MUTANTS[name](rates, 8) - expected) > 0.01


def test_a_table_and_json_say_the_same(tmp_path):
    files = {
        "a.csv": ("question,right,responses\nx,0,4\ny,3,4\nz,4,4\n", None, None),
        "b.json": ("[[0, 4], [3, 4], [4, 4]]", None, None),
        "c.json": (json.dumps([{"correct": n, "n": 4} for n in (0, 3, 4)]), None, None),
        "d.csv": ("score\n0\n0.75\n1\n", "score", 4),
        "e.csv": ("pass_rate,responses\n0,4\n0.75,4\n1,4\n", None, None),
    }
    for name, (text, *more) in files.items():
        (tmp_path / name).write_text(text)
        measured = read_rates(tmp_path / name, *more)
        assert (measured.counts.tolist(), measured.responses) == ([0, 3, 4], 4), name


def test_rates_without_responses_are_taken_as_exact_and_a_pilot_has_its_gradients(tmp_path):
    (tmp_path / "a.json").write_text("[0.0, 0.5]")
    measured = read_rates(tmp_path / "a.json", None, None)
    fitted = fit_rates(measured)
    assert measured.counts is None and "taken as exact" in fitted.origin
    assert zero_variance_share(fitted.rates, 2) == pytest.approx((1 + 0.5) / 2)
    measured = signal.pilot_rates(tmp_path, "tiny-mix97")
    assert measured.gradient == shipped_base("tiny-mix97").centred and len(measured.counts) == 512


def test_a_distribution_that_does_not_fit_is_not_believed():
    rng = np.random.default_rng(7)
    counts = rng.binomial(16, rng.choice([0.25, 0.9], 2000))
    fitted = fit_rates(signal.MeasuredRates(counts, 16, counts / 16))
    assert "without a form" in fitted.origin and isinstance(fitted.other, BetaBinomial)
    counts = rng.binomial(16, rng.beta(0.8, 2.0, 2000))
    assert isinstance(fit_rates(signal.MeasuredRates(counts, 16, counts / 16)).rates, BetaBinomial)


WRONG = {
    "no.csv": "a,b\n1,2\n", "empty.csv": "", "header.csv": "right,responses\n",
    "ragged.csv": "right,responses\n1,2,3\n", "short.csv": "right,responses\n1\n",
    "many.csv": "right,responses\n1,2\n1,3\n", "over.csv": "right,responses\n5,4\n2,4\n",
    "half.csv": "right,responses\n1.5,4\n2,4\n", "none.csv": "right\n1\n2\n", "nan.csv": "right,responses\nnan,4\n",
    "text.csv": "pass_rate\nhigh\n", "above.csv": "pass_rate\n45\n", "one.csv": "right,responses\n1,1\n0,1\n",
    "single.csv": "right,responses\n1,4\n", "bad.json": "{", "object.json": '{"right": 1}',
    "deep.json": "[" * 100_000, "words.json": '["a"]', "huge.json": "[1" + "0" * 400 + "]",
    "bool.json": '[{"right": true, "responses": 4}]', "binary.csv": "\x00\x01\x02\x03" * 40,
    "colours.csv": "[bold red]\x1b[31m,right\n1,2\n",
}  # fmt: skip


@pytest.mark.parametrize("name", WRONG)
def test_a_wrong_file_is_one_line(name, tmp_path):
    (tmp_path / name).write_text(WRONG[name])
    said = refused("signal", tmp_path / name)
    assert "allowed" in said and "\x1b" not in said


def test_a_pilot_prints_silent_groups_effective_batches_tries_and_drops():
    text = shown("signal", "--pair", "tiny-mix97", "--batch", 32, "--rollouts", 8, 16)
    share = zero_variance_share(fit_rates(signal.pilot_rates(Path("results"), "tiny-mix97")).rates, 8)
    numbers = (f"{share:.3f}", f"{32 * (1 - share):.1f}", f"{expected_tries(32, share)[0]:.2f}", "247 of 512")
    words = (*numbers, "B_eff", "r = 0.0672", "beta-binomial a = 0.67", "worth dropping: none")
    assert [one for one in words if one not in text] == []


@pytest.mark.parametrize(
    ("counts", "flags", "words", "absent"),
    [
        ([[c % 5, 4] for c in range(50)], (), ("needs r from a pilot's gradients",), "r ="),
        ([[c, 16] for c in [0] * 200 + [16] * 200 + [8] * 50], ("--rollouts", 2, 8),
         ("worth dropping for now", "200 of 450"), "none"),
        ([[0, 8]] * 28 + [[1, 8]] * 2, ("--rollouts", 4), ("worth dropping: none",), "for now"),
        ([[0, 4]] * 3, (), ("the counts do not decide", "over 1,000"), "r ="),
        (None, ("--p", 0.3), ("all alike",), "worth"),
    ],
)  # fmt: skip
def test_what_counts_tell_is_printed_and_nothing_more(counts, flags, words, absent, tmp_path):
    (tmp_path / "a.json").write_text(json.dumps(counts))
    text = shown("signal", *([tmp_path / "a.json"] if counts else []), *flags)
    assert [one for one in words if one not in text] == [] and absent not in text
