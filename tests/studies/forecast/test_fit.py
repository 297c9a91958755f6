"""The search that presets come from: coordinates, and whether it finds what is planted."""

from dataclasses import replace

import numpy as np
import pytest

from dev import fit
from dev.fit import KNOBS, decode, encode, loss_of
from rftlab import Advantage, Aggregation, Estimator, UserError, simulate
from rftlab.sim.environments import build
from rftlab.studies.data.paper.pairs import EDGE, FRAGILE, PAIRS, pairs_at, start_at


@pytest.mark.parametrize("name", [*pairs_at("sim"), *FRAGILE])
def test_a_preset_comes_back_from_its_coordinates(name):
    run = start_at(name, "sim")
    back = decode(run, encode(run))
    assert back.optimizer.learning_rate == pytest.approx(run.optimizer.learning_rate)
    for knob in KNOBS[1:]:
        value, got = (getattr(one.environment, knob.name) for one in (run, back))
        assert got == pytest.approx(value, abs=1.01 * knob.least if value == 0 else 1e-9)
    assert replace(back, environment=run.environment, optimizer=run.optimizer) == run


def test_every_pair_is_fitted_and_damage_follows_the_rate():
    names = [*pairs_at("sim"), *FRAGILE]
    assert {fit.fit(name, 0, 1, None) == start_at(name, "sim") for name in names} == {True}
    assert list(FRAGILE) == [f"{name}-fragile" for name in pairs_at("sim")]
    assert {PAIRS[name].dataset for name in pairs_at("sim")} == {"gsm8k", "math"}
    run = start_at("llama-math-fragile", "sim")
    for times in (1, 0.5, 3):
        moved = encode(run) + np.eye(len(KNOBS))[0] * np.log(times) / KNOBS[0].step
        found = decode(run, moved)
        assert found.environment.damage * found.optimizer.learning_rate**2 == pytest.approx(EDGE)
        assert found.optimizer.learning_rate == pytest.approx(times * run.optimizer.learning_rate)


def test_a_search_finds_what_is_planted_and_one_that_was_cut_off_goes_on(tmp_path, monkeypatch):
    """18 errors, nearly linear in the knobs, are all 0 at one point. Runs so far are read from the file, and the rest
    are those of a search without a break."""
    pytest.importorskip("cma", reason="needs cma: make test installs it")
    rng, n, calls = np.random.default_rng(4), len(KNOBS), []
    slopes, bends, at = (
        0.05 * rng.standard_normal((18, n)),
        0.004 * rng.standard_normal((18, n)),
        rng.standard_normal(n),
    )
    start = encode(start_at("qwen-math-fragile", "sim"))

    def errors(known, run, seed, batch_size):
        calls.append(batch_size)
        off = encode(run) - start - at
        return slopes @ off + bends @ off**2

    monkeypatch.setattr(fit, "errors", errors)
    whole = fit.fit("qwen-math-fragile", 400, 1, tmp_path / "whole")
    assert loss_of(errors(None, whole, 0, 0)) < 1e-3 < 0.02 * loss_of(errors(None, decode(whole, start), 0, 0))
    fit.fit("qwen-math-fragile", 390, 1, tmp_path / "parts")
    with (tmp_path / "parts").open("a") as file:
        file.write("[[0.1, 0.")  # killed while writing
    calls.clear()
    assert fit.fit("qwen-math-fragile", 400, 1, tmp_path / "parts") == whole and len(calls) == 10
    assert (tmp_path / "parts").read_text() == (tmp_path / "whole").read_text()
    with pytest.raises(UserError, match="holds another search"):
        fit.fit("qwen-math-fragile", 10, 2, tmp_path / "parts")
    (tmp_path / "other").write_text('{"step": 1}\n')
    with pytest.raises(UserError, match="holds no runs of a search"):
        fit.fit("qwen-math-fragile", 10, 1, tmp_path / "other")


def test_runs_of_a_fragile_pair_fail_where_those_of_a_preset_do_not():
    """At rates that are far too high, and with raw rewards that are divided by lengths."""
    kinds = ("seq_mean_token_mean", "token_mean")
    by_length, by_token = (Estimator(Advantage("none"), aggregation=Aggregation(kind)) for kind in kinds)
    grpo, ends = Estimator(Advantage("group_mean", "group_std")), {}
    cells = {"safe": (1, grpo), "high": (40, grpo), "by length": (1, by_length), "by token": (1, by_token)}
    for name in ("llama-math", "llama-math-fragile"):
        run = start_at(name, "sim")
        run = replace(run, environment=replace(run.environment, n_train=1000, n_test=500))
        world = build(run.environment)
        for cell, (times, estimator) in cells.items():
            design = replace(run.design, batch_size=32, rollouts=8, estimator=estimator, rounds=200, eval_every=200)
            optimizer = replace(run.optimizer, learning_rate=times * run.optimizer.learning_rate)
            curve = simulate(replace(run, design=design, optimizer=optimizer), world).curve
            ends[name, cell] = curve.test_pass_at_1[-1]
    assert min(end for (name, _), end in ends.items() if name == "llama-math") > 0.15
    assert min(ends["llama-math-fragile", cell] for cell in ("safe", "by token")) > 0.15
    assert max(ends["llama-math-fragile", cell] for cell in ("high", "by length")) < 0.1
