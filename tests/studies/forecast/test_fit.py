"""The search that presets come from: coordinates, and whether it finds what is planted."""

from dataclasses import replace

import numpy as np
import pytest

from dev import fit
from dev.fit import KNOBS, Surfaces, decode, encode, loss_of
from rftlab.shared.config.advantage import Advantage
from rftlab.shared.config.aggregation import Aggregation
from rftlab.shared.estimator import Estimator
from rftlab.sim.environments import build
from rftlab.sim.run import simulate
from rftlab.studies.data.paper.pairs import EDGE, FRAGILE, PAIRS, pairs_at, start_at


@pytest.mark.parametrize("name", [*pairs_at("sim"), *FRAGILE])
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
    names = [*pairs_at("sim"), *FRAGILE]
    assert {fit.fit(name, 0, 0, None) == start_at(name, "sim") for name in names} == {True}
    assert list(FRAGILE) == [f"{name}-fragile" for name in pairs_at("sim")]
    assert {PAIRS[name].dataset for name in pairs_at("sim")} == {"gsm8k", "math"}


def test_damage_follows_the_rate():
    run = start_at("llama-math-fragile", "sim")
    for times in (1, 0.5, 3):
        moved = encode(run) + np.eye(len(KNOBS))[0] * np.log(times) / KNOBS[0].step
        found = decode(run, moved)
        assert found.environment.damage * found.optimizer.learning_rate**2 == pytest.approx(EDGE)
        assert found.optimizer.learning_rate == pytest.approx(times * run.optimizer.learning_rate)


def test_a_search_that_was_cut_off_goes_on(tmp_path, monkeypatch):
    """Its runs are read from the file, and the rest are those of a search without a break."""
    evaluate, calls = planted(0.0)[0], []

    def errors(known, run, seed, batch_size):
        calls.append(batch_size)
        return evaluate(np.append(encode(run), np.zeros(10 - len(KNOBS))))

    monkeypatch.setattr(fit, "errors", errors)
    whole = fit.fit("qwen-math-fragile", 22, 0, tmp_path / "whole")
    fit.fit("qwen-math-fragile", 19, 0, tmp_path / "parts")
    calls.clear()
    assert fit.fit("qwen-math-fragile", 22, 0, tmp_path / "parts") == whole and len(calls) == 3
    assert (tmp_path / "parts").read_text() == (tmp_path / "whole").read_text()


def test_runs_of_a_fragile_pair_fail_where_those_of_a_preset_do_not():
    """At rates that are far too high, and with raw rewards that are divided by lengths."""
    raw = {
        kind: Estimator(Advantage("none"), aggregation=Aggregation(kind))
        for kind in ("seq_mean_token_mean", "token_mean")
    }
    grpo, ends = Estimator(Advantage("group_mean", "group_std")), {}
    for name in ("llama-math", "llama-math-fragile"):
        run = start_at(name, "sim")
        run = replace(run, environment=replace(run.environment, n_train=1000, n_test=500))
        world = build(run.environment)
        cells = {"safe": (1, grpo), "high": (40, grpo), "by length": (1, raw["seq_mean_token_mean"])}
        for cell, (times, estimator) in {**cells, "by token": (1, raw["token_mean"])}.items():
            design = replace(run.design, batch_size=32, rollouts=8, estimator=estimator, rounds=200, eval_every=200)
            optimizer = replace(run.optimizer, learning_rate=times * run.optimizer.learning_rate)
            curve = simulate(replace(run, design=design, optimizer=optimizer), world).curve
            ends[name, cell] = curve.test_pass_at_1[-1]
    assert min(end for (name, _), end in ends.items() if name == "llama-math") > 0.15
    assert min(ends["llama-math-fragile", cell] for cell in ("safe", "by token")) > 0.15
    assert max(ends["llama-math-fragile", cell] for cell in ("high", "by length")) < 0.1


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
