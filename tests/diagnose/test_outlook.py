"""What a longer run is worth: against the slow way, and against curves of which the future is known."""

import numpy as np
import pytest

from rftlab.studies.analysis.diagnose import outlook as module
from rftlab.studies.analysis.diagnose.observed import Line
from rftlab.studies.analysis.diagnose.outlook import Outlook, outlook, shapes
from rftlab.studies.analysis.diagnose.progress import longer


def line(values, metric="reward_mean"):
    values = np.asarray(values, dtype=float)
    return Line(metric, np.arange(len(values)), values, np.full(len(values), np.nan))


def test_shapes_begin_at_0_and_are_1_now():
    found = shapes(np.array([0.0, 1.0]))
    assert np.allclose(found[:, 0], 0) and np.allclose(found[:, 1], 1)


def test_the_posterior_is_that_of_the_joint_normal_distribution():
    """Values and gain are jointly normal: condition the long way, one shape at a time."""
    draw = np.random.default_rng(0)
    t, y, variances, drift, ahead = np.linspace(0, 1, 9), draw.standard_normal(9), draw.uniform(0.1, 1, 9), 0.3, 0.5
    sizes = np.array([variances, 2 * variances]), np.array([drift, 0.1])
    at = shapes(np.concatenate([t, [1, 1 + ahead]]))
    logs, means, found = (column[0] for column in module._posterior(t, y, *sizes, at, ahead))
    every = np.concatenate([t, [1, 1 + ahead]])
    for s in range(len(at)):
        joint = np.outer(at[s], at[s]) + drift * np.minimum.outer(every, every) + module._FLAT**2
        joint[:9, :9] += np.diag(variances)
        gain = joint[10, :9] - joint[9, :9]
        inverse = np.linalg.inv(joint[:9, :9])
        assert means[s] == pytest.approx(gain @ inverse @ y, rel=1e-6, abs=1e-9)
        prior = joint[10, 10] + joint[9, 9] - 2 * joint[10, 9]
        assert found[s] == pytest.approx(prior - gain @ inverse @ gain, rel=1e-6)
        log = -0.5 * (np.linalg.slogdet(joint[:9, :9])[1] + y @ inverse @ y)
        assert logs[s] == pytest.approx(log, rel=1e-6)


def saturating(draw, n=60, noise=0.03):
    """Values of a curve that bends down, and what half as many rounds again bring."""
    time, height = draw.uniform(0.1, 1.0), draw.uniform(0.2, 0.5)
    t = np.linspace(0, 1, n)
    more = height * (np.exp(-1 / time) - np.exp(-1.5 / time))
    return 0.1 + height * (1 - np.exp(-t / time)) + noise * draw.standard_normal(n), more


def test_the_interval_holds_what_comes_and_a_tenth_of_it_does_not():
    draw, inside, narrow = np.random.default_rng(1), 0, 0
    for _ in range(60):
        values, more = saturating(draw)
        found = longer(line(values))
        inside += found.low <= more <= found.high
        narrow += abs(more - (found.low + found.high) / 2) <= (found.high - found.low) / 20
    assert inside >= 54 and narrow <= 45, (inside, narrow)


def test_a_curve_that_is_flat_brings_less_for_certain_than_one_that_rises():
    draw = np.random.default_rng(2)
    t, noise = np.linspace(0, 1, 60), 0.01 * draw.standard_normal(60)
    flat, rising = (longer(line(curve + noise)) for curve in (0.5 * (1 - np.exp(-t / 0.05)), 0.5 * t))
    assert flat.outlook.chance(0.04) > 0.9 and rising.outlook.chance(0.04) < 0.02
    assert rising.low < 0.25 < rising.high and not flat.low < 0.25 < flat.high


def test_a_rate_is_at_most_1():
    values = np.linspace(0.5, 0.99, 40)
    assert longer(line(values, "pass_at_1")).high <= 0.07 < longer(line(values)).high


def test_probabilities_are_of_the_mixture():
    two = Outlook(np.array([0.25, 0.75]), np.array([-1.0, 1.0]), np.array([0.01, 0.01]))
    assert two.mean == pytest.approx(0.5) and two.chance(0.0) == pytest.approx(0.25)
    assert two.interval(0.6) == pytest.approx((-1.0, 1.0), abs=0.05)


def test_numbers_without_a_future():
    """All equal, at one round, and too large."""
    assert longer(line(np.ones(20))).high == pytest.approx(0.0, abs=1e-6)
    assert longer(Line("reward_mean", np.ones(20, dtype=int), np.arange(20.0), np.ones(20))) is None
    with np.errstate(all="ignore"):
        assert outlook(np.arange(20), np.tile([1.7e308, -1.7e308], 10), 0.5) is None
