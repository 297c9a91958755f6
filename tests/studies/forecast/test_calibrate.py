"""Calibrations find what is there: against an exact posterior, a planted world, and themselves."""

import shutil
from dataclasses import replace

import numpy as np
import pytest

from rftlab import PAIRS, Curve, UserError
from rftlab.sim.environments import build
from rftlab.studies.forecast import calibrate as module
from rftlab.studies.forecast import evidence as observations
from rftlab.studies.forecast import knobs
from rftlab.studies.forecast.calibrate import _sum, calibrate, calibrated, identity, log_likelihood
from rftlab.studies.forecast.evidence import DISCREPANCY, Evidence, observe_curve, paper_evidence
from rftlab.studies.forecast.knobs import LONG, SHORT, Effort, Facts, SimulatorKnob, answer_rates, build_world, paced
from rftlab.studies.forecast.pilot.pilot import CELLS, PILOT_CELLS
from tests.support.damage import PUT
from tests.support.worlds.planted import CENTRE, FACTS, TINY, planted


def other_curve(rounds, train, test) -> Curve:
    curve = Curve(*np.zeros((len(Curve._fields), len(rounds))))
    return curve._replace(round=np.array(rounds), train_pass_at_1=np.array(train), test_pass_at_1=np.array(test))


def test_weights_give_the_exact_posterior_of_a_normal_likelihood(monkeypatch):
    """One observation of the first coordinate, deviation 0.3: posterior mean 1.5 / (1 + 0.09), variance 0.09 / 1.09;
    the others keep their prior."""
    monkeypatch.setattr(module, "log_likelihood", lambda evidence, at, seed: -0.5 * ((1.5 - at[0]) / 0.3) ** 2)
    family = replace(SHORT, effort=Effort(1024, 512, 4))
    result = calibrate(Evidence(replace(FACTS, family=family), ()), 0, 1)
    own, weights = result.particles.coordinates, result.weights
    mean = weights @ own
    variance = weights @ (own - mean) ** 2
    assert result.temperature == 1 and weights.sum() == pytest.approx(1)
    assert mean[0] == pytest.approx(1.5 / 1.09, abs=0.06) and variance[0] == pytest.approx(0.09 / 1.09, rel=0.25)
    assert np.abs(mean[1:]).max() < 0.25 and np.abs(variance[1:] - 1).max() < 0.4
    assert own[result.draws].mean(axis=0)[0] == pytest.approx(1.5 / 1.09, abs=0.2)
    # a likelihood that few particles meet is annealed
    monkeypatch.setattr(module, "log_likelihood", lambda evidence, at, seed: -1e4 * float((at - 0.5) @ (at - 0.5)))
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
        mine, theirs = ((*known.particles, known.weights, known.draws) for known in (one, other))
        for a, b in zip(mine, theirs, strict=True):
            np.testing.assert_array_equal(a, b)
    assert told[0] == (81, 96) and told[-1] == (96, 96)
    assert not np.array_equal(calibrate(evidence, 6, 1).particles.coordinates, one.particles.coordinates)


def test_the_truth_is_likelier_than_what_is_far_away_and_than_what_cannot_be():
    evidence, slow = planted(), np.append(-6.0, CENTRE[1:])
    near, far = ([log_likelihood(evidence, at, seed) for seed in range(4)] for at in (CENTRE, slow))
    assert min(near) > max(far)
    # Right in one of 200 responses, where a random answer is right in one of 64.
    facts = Facts(TINY, 96, 64, 0.005, 0.98)
    assert build_world(facts, CENTRE, 0) is None
    assert log_likelihood(Evidence(facts, ()), CENTRE, 0) == -np.inf
    said = r"right in 0\.50% of its responses and well formed in 98\.00%; allowed: what a simulated base policy"
    with pytest.raises(UserError, match=said):
        calibrate(Evidence(facts, ()), 0, 1)


def test_points_of_a_run_share_what_the_simulator_leaves_out():
    """Equal residuals are likelier than residuals of the same size with changing signs; a curve that ended early
    counts as 0."""
    design = replace(CELLS[PILOT_CELLS[0]], rounds=60, eval_every=10)
    rounds = np.arange(0, 70, 10)
    observed = observe_curve(design, other_curve(rounds, np.full(7, 0.5), np.full(7, 0.5)), (500, 500))
    assert observed.rounds.tolist() == [10, 20, 30, 40, 50, 60] and observed.design.eval_every == 10
    signs = np.array([1, -1, 1, -1, 1, -1, 1])
    curves = (other_curve(rounds, *[0.5 + 2 * DISCREPANCY * s] * 2) for s in (np.ones(7), signs))
    same, changing = (observed.log_likelihood(curve, 4.0) for curve in curves)
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


def test_priors_are_of_knobs_of_the_rounds_and_of_other_pairs():
    knob = SimulatorKnob("rho", "logit", 0.9, 1.0)
    assert knob.value(np.zeros(1))[0] == pytest.approx(0.9) and 0.9 < knob.value(np.ones(1))[0] < 1
    assert SimulatorKnob("rate", "log", 1.0, 0.5).around([0.01, 0.04]).median == pytest.approx(0.02)
    # A tenth of the rounds, ten times the rate; all else stays.
    (rate, *others), (usual, *same) = paced(SHORT, 60).knobs, SHORT.knobs
    assert (rate.name, rate.median) == ("rate", pytest.approx(10 * usual.median)) and others == same
    assert "rate" not in [knob.name for knob in others] and paced(SHORT, SHORT.rounds) == SHORT
    result = {knob.name: knob.median for knob in paper_evidence("qwen-gsm8k").facts.family.knobs}
    others = [PAIRS[name].sim for name in ("llama-gsm8k", "olmo-gsm8k")]
    assert result == {knob.name: knob.median for knob in knobs.informed(LONG, others).knobs}
    rates = [other.optimizer.learning_rate for other in others]
    assert result["rate"] == pytest.approx(np.sqrt(rates[0] * rates[1]))


def test_a_stored_calibration_is_read_and_is_of_its_evidence_and_seed(calibrations):
    folder, evidence, first = calibrations
    told = []
    again = calibrated(folder, "tiny-mix97", evidence, 0, 1, lambda done, total: told.append(done), pytest.fail)
    assert told == []
    np.testing.assert_array_equal(first.draws, again.draws)
    moved = evidence.runs[0]._replace(values=evidence.runs[0].values + 0.01)
    other = evidence._replace(runs=(moved, evidence.runs[1]))
    assert len({identity(other, 0), identity(evidence, 0), identity(evidence, 1)}) == 3


def test_evidence_of_a_pilot_has_its_base_model_and_runs(pilot):
    evidence = observations.pilot_evidence(pilot)
    assert evidence.facts.family == SHORT and (evidence.facts.n_train, evidence.facts.n_test) == (2048, 500)
    assert evidence.facts.strict == pytest.approx(0.081, abs=0.01) and evidence.facts.formed > 0.95
    assert [run.values[-1, 1] for run in evidence.runs] == [run.curve.test_pass_at_1[-1] for run in pilot.runs]


NAN = np.full(3, np.nan).tobytes()
GARBAGE = {
    "nothing": lambda file, other: file.write_bytes(b""),
    "garbage": lambda file, other: file.write_bytes(bytes(range(256))),
    "of another seed": lambda file, other: file.write_bytes(other.read_bytes()),
    "cut": lambda file, other: file.write_bytes(file.read_bytes()[:-3]),
    "no numbers": lambda file, other: file.write_bytes(_sum(file, b"abc") + b"abc"),
    "nan": lambda file, other: file.write_bytes(_sum(file, NAN) + NAN),
}


@pytest.mark.parametrize("kind", [*GARBAGE, "a folder", "a pipe", "a symbolic link", "a dangling link"])
def test_a_file_that_is_no_calibration_is_named_and_made_again(calibrations, tmp_path, kind):
    folder, evidence, first = calibrations
    shutil.copytree(folder, tmp_path / "results")
    files = [tmp_path / "results" / "calibrate" / "tiny-mix97" / f"{identity(evidence, seed)}.bin" for seed in (0, 1)]
    if kind in PUT:
        files[0].unlink()
    (GARBAGE | PUT)[kind](*files)
    other, remarks = files[1].read_bytes(), []
    for _ in range(2):
        again = calibrated(tmp_path / "results", "tiny-mix97", evidence, 0, 1, lambda done, total: None, remarks.append)
        np.testing.assert_array_equal(first.weights, again.weights)
    assert len(remarks) == 1 and str(files[0]) in remarks[0] and files[1].read_bytes() == other


@pytest.fixture(scope="module")
def calibrations(tmp_path_factory):
    """A folder with the calibrations of two seeds, their evidence, and the first of them."""
    folder, evidence = tmp_path_factory.mktemp("calibrations"), planted()
    first, _ = (calibrated(folder, "tiny-mix97", evidence, seed, 1, lambda *_: None, pytest.fail) for seed in (0, 1))
    return folder, evidence, first
