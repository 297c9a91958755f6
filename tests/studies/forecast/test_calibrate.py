"""Calibrations find what is there: against an exact posterior, a planted world, and themselves."""

import os
import shutil
from dataclasses import replace

import numpy as np
import pytest

from rftlab.shared.curve import Curve
from rftlab.shared.plumbing.errors import UserError
from rftlab.sim.environments import build
from rftlab.studies.data.paper.pairs import PAIRS
from rftlab.studies.data.results.reference import shipped_runs
from rftlab.studies.forecast import calibrate as module
from rftlab.studies.forecast.calibrate import _sum, calibrate, calibrated, identity, log_likelihood
from rftlab.studies.forecast.evidence import (
    DISCREPANCY,
    Evidence,
    Observed,
    observe_curve,
    paper_evidence,
    pilot_evidence,
)
from rftlab.studies.forecast.knobs import (
    LONG,
    SHORT,
    Effort,
    Facts,
    SimulatorKnob,
    answer_rates,
    build_world,
    informed,
    paced,
)
from rftlab.studies.forecast.pilot.pilot import CELLS, PILOT_CELLS, pilot_from
from rftlab.studies.forecast.pilot.store import shipped_base
from tests.support.worlds.planted import CENTRE, FACTS, TINY, planted


def other_curve(rounds, train, test) -> Curve:
    n = len(rounds)
    other = {name: np.zeros(n) for name in Curve._fields}
    return Curve(
        **other | {"round": np.array(rounds), "train_pass_at_1": np.array(train), "test_pass_at_1": np.array(test)}
    )


def test_weights_give_the_exact_posterior_of_a_normal_likelihood(monkeypatch):
    """One observation of the first coordinate, deviation 0.3: posterior mean 1.5 / (1 + 0.09), variance 0.09 / 1.09;
    the others keep their prior."""
    monkeypatch.setattr(
        module, "log_likelihood", lambda evidence, coordinates, seed: -0.5 * ((1.5 - coordinates[0]) / 0.3) ** 2
    )
    family = replace(SHORT, effort=Effort(1024, 512, 4))
    result = calibrate(Evidence(replace(FACTS, family=family), ()), 0, 1)
    own, weights = result.particles.coordinates, result.weights
    mean = weights @ own
    variance = weights @ (own - mean) ** 2
    assert result.temperature == 1 and weights.sum() == pytest.approx(1)
    assert mean[0] == pytest.approx(1.5 / 1.09, abs=0.06) and variance[0] == pytest.approx(0.09 / 1.09, rel=0.25)
    assert np.abs(mean[1:]).max() < 0.25 and np.abs(variance[1:] - 1).max() < 0.4
    centre = own[result.draws].mean(axis=0)
    assert centre[0] == pytest.approx(1.5 / 1.09, abs=0.2)


def test_a_likelihood_that_few_particles_meet_is_annealed(monkeypatch):
    monkeypatch.setattr(
        module,
        "log_likelihood",
        lambda evidence, coordinates, seed: -1e4 * float((coordinates - 0.5) @ (coordinates - 0.5)),
    )
    posterior = calibrate(Evidence(FACTS, ()), 0, 1)
    assert posterior.temperature < 1 and posterior.effective == pytest.approx(module.ENOUGH, rel=0.01)


def test_equal_evidence_gives_equal_particles_for_any_threads_and_after_an_interruption():
    evidence, kept = planted(), []
    one = calibrate(evidence, 5, 1, keep=lambda result: kept.append(result.copy()))
    two = calibrate(evidence, 5, 2)
    assert [len(result) for result in kept] == [64, 80, 96]
    told = []
    resumed = calibrate(evidence, 5, 2, kept[1], progress=lambda done, total: told.append((done, total)))
    for other in (two, resumed):
        for a, b in zip(one.particles, other.particles, strict=True):
            np.testing.assert_array_equal(a, b)
        np.testing.assert_array_equal(one.weights, other.weights)
        np.testing.assert_array_equal(one.draws, other.draws)
    assert told[0] == (81, 96) and told[-1] == (96, 96)
    assert not np.array_equal(calibrate(evidence, 6, 1).particles.coordinates, one.particles.coordinates)


def test_the_truth_is_likelier_than_what_is_far_away():
    evidence = planted()
    near = [log_likelihood(evidence, CENTRE, seed) for seed in range(4)]
    slow = CENTRE.copy()
    slow[0] = -6.0
    assert min(near) > max(log_likelihood(evidence, slow, seed) for seed in range(4))


def test_points_of_a_run_share_what_the_simulator_leaves_out():
    """Equal residuals are likelier than residuals of the same size with changing signs; a curve that ended early
    counts as 0."""
    design = replace(CELLS[PILOT_CELLS[0]], rounds=60, eval_every=10)
    rounds = np.arange(0, 70, 10)
    observed = observe_curve(design, other_curve(rounds, np.full(7, 0.5), np.full(7, 0.5)), (500, 500))
    assert observed.rounds.tolist() == [10, 20, 30, 40, 50, 60] and observed.design.eval_every == 10
    signs = np.array([1, -1, 1, -1, 1, -1, 1])
    same, changing = (
        observed.log_likelihood(other_curve(rounds, 0.5 + 2 * DISCREPANCY * s, 0.5 + 2 * DISCREPANCY * s), 4.0)
        for s in (np.ones(7), signs)
    )
    assert same > changing
    np.testing.assert_allclose(observed.residual(other_curve(rounds[:4], np.full(4, 0.5), np.full(4, 0.5)))[3:], 0.5)


@pytest.mark.parametrize("strict, formed", [(0.08, 0.99), (0.07, 0.45), (0.3, 0.6), (0.9, 0.95)])
def test_base_policies_are_as_right_and_as_well_formed_as_asked(strict, formed):
    facts = Facts(SHORT, 2048, 100, strict, formed)
    start = build_world(facts, np.zeros(len(SHORT.knobs)), 7)
    base = build(start.environment).train
    well_formed = np.exp(base.base_format_logp[:, 1]).mean()
    assert well_formed == pytest.approx(formed, abs=0.02)
    assert answer_rates(start.environment).mean() == pytest.approx(strict / formed, rel=0.2)


def test_what_no_base_policy_can_be_has_no_likelihood_and_is_refused():
    """Right in one of 200 responses, where a random answer is right in one of 64."""
    facts = Facts(TINY, 96, 64, 0.005, 0.98)
    assert build_world(facts, CENTRE, 0) is None
    assert log_likelihood(Evidence(facts, ()), CENTRE, 0) == -np.inf
    with pytest.raises(
        UserError,
        match=r"right in 0\.50% of its responses and well formed in 98\.00%; allowed: what a simulated base policy",
    ):
        calibrate(Evidence(facts, ()), 0, 1)


def test_knobs_go_from_coordinates_to_values_and_around_others():
    knob = SimulatorKnob("rho", "logit", 0.9, 1.0)
    assert knob.value(np.zeros(1))[0] == pytest.approx(0.9) and 0.9 < knob.value(np.ones(1))[0] < 1
    assert SimulatorKnob("rate", "log", 1.0, 0.5).around([0.01, 0.04]).median == pytest.approx(0.02)


def test_the_rate_s_prior_is_that_of_the_rounds():
    """A tenth of the rounds, ten times the rate; all else stays."""
    fast = paced(SHORT, 60)
    rates, others = ([knob for knob in fast.knobs if (knob.name == "rate") == which] for which in (True, False))
    assert [knob.median for knob in rates] == pytest.approx([10 * SHORT.knobs[0].median]) and SHORT.knobs[
        0
    ].name == "rate"
    assert others == list(SHORT.knobs[1:]) and paced(SHORT, SHORT.rounds) == SHORT


def test_the_prior_of_a_published_pair_does_not_know_its_own_preset():
    result = {knob.name: knob.median for knob in paper_evidence("qwen-gsm8k").facts.family.knobs}
    others = [PAIRS[name].sim for name in ("llama-gsm8k", "olmo-gsm8k")]
    assert result == {knob.name: knob.median for knob in informed(LONG, others).knobs}
    assert result["rate"] == pytest.approx(
        np.sqrt(others[0].optimizer.learning_rate * others[1].optimizer.learning_rate)
    )


def test_a_stored_calibration_is_read_and_a_damaged_one_is_named(tmp_path):
    evidence, remarks = planted(), []
    first = calibrated(tmp_path, "tiny-mix97", evidence, 0, 1, lambda done, total: None, remarks.append)
    file = tmp_path / "calibrate" / "tiny-mix97" / f"{identity(evidence, 0)}.bin"
    told = []
    again = calibrated(tmp_path, "tiny-mix97", evidence, 0, 1, lambda done, total: told.append(done), remarks.append)
    assert told == [] and remarks == []
    np.testing.assert_array_equal(first.draws, again.draws)
    file.write_bytes(file.read_bytes()[:-1])
    third = calibrated(tmp_path, "tiny-mix97", evidence, 0, 1, lambda done, total: None, remarks.append)
    assert len(remarks) == 1 and str(file) in remarks[0]
    np.testing.assert_array_equal(first.weights, third.weights)
    moved = Observed(*evidence.runs[0][:2], evidence.runs[0].values + 0.01, evidence.runs[0].errors)
    assert (
        identity(evidence._replace(runs=(moved, evidence.runs[1])), 0) != identity(evidence, 0) != identity(evidence, 1)
    )


def test_evidence_of_a_pilot_has_its_base_model_and_runs():
    pilot = pilot_from(shipped_runs(), shipped_base("tiny-mod97"))
    evidence = pilot_evidence(pilot)
    assert evidence.facts.family == SHORT and (evidence.facts.n_train, evidence.facts.n_test) == (2048, 500)
    assert evidence.facts.strict == pytest.approx(0.081, abs=0.01) and evidence.facts.formed > 0.95
    assert [run.values[-1, 1] for run in evidence.runs] == [run.curve.test_pass_at_1[-1] for run in pilot.runs]
    with pytest.raises(UserError, match="a pilot needs one"):
        pilot_from(shipped_runs(), shipped_base("tiny-mod97"), seed=99)


def folder_at(place):
    place.unlink()
    place.mkdir()


GARBAGE = {
    "nothing": lambda file, other: file.write_bytes(b""),
    "garbage": lambda file, other: file.write_bytes(bytes(range(256))),
    "of another seed": lambda file, other: file.write_bytes(other.read_bytes()),
    "cut": lambda file, other: file.write_bytes(file.read_bytes()[:-3]),
    "no numbers": lambda file, other: file.write_bytes(_sum(file, b"abc") + b"abc"),
    "nan": lambda file, other: file.write_bytes(
        _sum(file, np.full(3, np.nan).tobytes()) + np.full(3, np.nan).tobytes()
    ),
    "folder": lambda file, other: folder_at(file),
    "pipe": lambda file, other: (file.unlink(), os.mkfifo(file)),
    "link": lambda file, other: (file.unlink(), file.symlink_to(other)),
    "dangling link": lambda file, other: (file.unlink(), file.symlink_to("nowhere")),
}


@pytest.mark.parametrize("kind", GARBAGE)
def test_a_file_that_is_no_calibration_is_named_and_made_again(calibrations, tmp_path, kind):
    folder, evidence, first = calibrations
    shutil.copytree(folder, tmp_path / "results")
    files = [tmp_path / "results" / "calibrate" / "tiny-mix97" / f"{identity(evidence, seed)}.bin" for seed in (0, 1)]
    GARBAGE[kind](*files)
    other, remarks = files[1].read_bytes(), []
    for _ in range(2):
        again = calibrated(tmp_path / "results", "tiny-mix97", evidence, 0, 1, lambda done, total: None, remarks.append)
        np.testing.assert_array_equal(first.weights, again.weights)
    assert len(remarks) == 1 and str(files[0]) in remarks[0] and files[1].read_bytes() == other


@pytest.fixture(scope="module")
def calibrations(tmp_path_factory):
    """A folder with the calibrations of two seeds, their evidence, and the first of them."""
    folder, evidence = tmp_path_factory.mktemp("calibrations"), planted()
    result = [
        calibrated(folder, "tiny-mix97", evidence, seed, 1, lambda done, total: None, pytest.fail) for seed in (0, 1)
    ]
    return folder, evidence, result[0]
