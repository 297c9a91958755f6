"""The search that presets come from: coordinates, and whether it finds what is planted."""

from dataclasses import replace

import numpy as np
import pytest

from dev import fit
from dev.fit import KNOBS, Surfaces, decode, encode, loss_of
from rftlab.studies.data.paper.pairs import PAIRS, pairs_at, start_at


@pytest.mark.parametrize("name", pairs_at("sim"))
def test_a_preset_comes_back_from_its_coordinates(name):
    run = start_at(name, "sim")
    back = decode(run, encode(run))
    assert back.optimizer.learning_rate == pytest.approx(run.optimizer.learning_rate)
    for knob in KNOBS[1:]:
        value = getattr(run.environment, knob.name)
        assert getattr(back.environment, knob.name) == pytest.approx(
            value, abs=1.01 * knob.least if value == 0 else 1e-9
        )
    assert replace(back, environment=run.environment, optimizer=run.optimizer) == run


def test_every_pair_is_fitted_and_without_evaluations_stays_as_it_is():
    assert {fit.fit(name, 0, 0) == start_at(name, "sim") for name in pairs_at("sim")} == {True}
    assert {PAIRS[name].dataset for name in pairs_at("sim")} == {"gsm8k", "math"}


def planted(noise):
    """18 errors of 10 knobs, nearly linear, all 0 but for noise at a point."""
    rng = np.random.default_rng(4)
    slopes, bends = 0.05 * rng.standard_normal((18, 10)), 0.004 * rng.standard_normal((18, 10))
    at = rng.standard_normal(10)

    def evaluate(x):
        return slopes @ (x - at) + bends @ (x - at) ** 2 + noise * rng.standard_normal(18)

    return evaluate, at


def searched(next_of, evaluations=60):
    """The true loss at the best of so many runs, of which the first 21 are spread out."""
    evaluate, _ = planted(0.005)
    exact, rng = planted(0.0)[0], np.random.default_rng(1)
    surfaces = Surfaces(evaluate)
    for evaluation in range(evaluations):
        surfaces.add(0.5 * rng.standard_normal(10) if evaluation <= 20 else next_of(surfaces, rng))
    return loss_of(exact(surfaces.points[surfaces.best]))


def test_the_surfaces_find_what_is_planted_and_chance_does_not():
    best = searched(lambda surfaces, rng: surfaces.next(rng))
    chance = searched(lambda surfaces, rng: surfaces.points[surfaces.best] + 0.5 * rng.standard_normal(10))
    assert best < 1e-3 and chance > 5 * best
