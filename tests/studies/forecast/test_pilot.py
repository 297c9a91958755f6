"""Pilots: what they are, their files, gradient noise from products, requests; no torch needed."""

import json
import math
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest

from rftlab.llm.probe_config import ProbeConfig
from rftlab.shared.plumbing.errors import UserError
from rftlab.studies.data.paper.experiments import EXPERIMENTS
from rftlab.studies.data.paper.pairs import PAIRS, start_at
from rftlab.studies.data.results.reference import shipped_runs
from rftlab.studies.data.runs.files import checksummed
from rftlab.studies.data.runs.points import study_points
from rftlab.studies.forecast.evidence import whole_pairs
from rftlab.studies.forecast.pilot import store
from rftlab.studies.forecast.pilot.pilot import CELLS, PILOT_CELLS, PilotMeasurements, pilot_from
from rftlab.studies.forecast.pilot.run import count_answers, wanted
from rftlab.studies.forecast.pilot.show import spark
from rftlab.studies.forecast.pilot.store import pilot_path, read_measurements, ship, shipped_base, write_measurements
from tests.support.damage import PUT

PAIR = "tiny-mod97"


def test_the_usual_designs_and_runs_are_of_the_grid_and_a_twentieth_of_it():
    assert len(CELLS) == 25 and sum(cell.round_rollouts for cell in CELLS.values()) == 12_288
    assert sum(CELLS[cell].round_rollouts for cell in PILOT_CELLS) == 576
    assert CELLS["256x1-paper_text"] == EXPERIMENTS["tradeoff"].cells[-2]
    assert CELLS["32x1-minimalist"] == EXPERIMENTS["baseline"].cells[0]
    assert pilot_from(shipped_runs(), shipped_base(PAIR)).fraction < 0.053
    grid = {point.id for point in study_points(list(EXPERIMENTS.values()), "llm", [PAIR], 1, None)}
    whole, short = (wanted(PAIR, PILOT_CELLS, rounds, ProbeConfig()) for rounds in (None, 20))
    assert {point.id for point in whole.points()} < grid and not {point.id for point in short.points()} & grid
    assert {point.run.design.rounds for point in short.points()} == {20} and short.config() != whole.config()
    assert short.base_config() == wanted(PAIR, (), None, ProbeConfig()).base_config()
    assert short.base_config() != wanted(PAIR, (), None, ProbeConfig(samples=8)).base_config()
    assert json.loads(json.dumps(short.config())) == short.config()


def test_shipped_runs_make_a_pilot(pilot):
    usual = start_at(PAIR, "llm").design
    assert (pilot.rounds, pilot.eval_every) == (usual.rounds, usual.eval_every)
    assert [run.cell for run in pilot.runs] == list(PILOT_CELLS)
    curves = shipped_runs().query("pair == @PAIR and seed == 0")
    for run in pilot.runs:
        own = curves[curves["cell"] == run.cell]
        for name in ("test_pass_at_1", "test_flexible"):
            assert getattr(run.curve, name).tolist() == own[name].tolist()
        assert run.design == replace(CELLS[run.cell], rounds=usual.rounds, eval_every=usual.eval_every)
        assert not run.diverged
        assert (run.train_questions, run.test_questions, run.responses, run.evaluated) == (500, 500, 1, 13 * 1000 * 2)
        assert run.spent.rollouts == usual.rounds * run.design.round_rollouts == own["rollouts"].max()
    midway = 32 * 300 + 16 * 512
    spent = sum(spent.rollouts for spent in pilot.spent.values())
    assert pilot.total.rollouts == 576 * 600 + 16 * 1012 + 6400 + midway == spent
    assert pilot.fraction == pytest.approx(pilot.total.rollouts / (12_288 * 600))


def test_the_base_model_answers_as_the_curves_begin_and_its_gradients_are_as_long_as_theirs(pilot):
    for pair in whole_pairs(shipped_runs()):
        base, curves = shipped_base(pair), shipped_runs().query("pair == @pair and round == 0 and seed == 0")
        for split in ("train", "test"):
            answers = getattr(base, split)
            for name, column in (("strict", f"{split}_pass_at_1"), ("flexible", f"{split}_flexible")):
                rate = answers.rate(name)
                assert curves[column].iloc[0] == pytest.approx(rate, abs=4 * math.sqrt(rate * (1 - rate) / 500))
            assert answers.samples == 16 and len(answers.strict) == {"train": 512, "test": 500}[split]
    # Norms of the first 50 rounds of (32, 1) with the raw reward, which hardly moves, are those that signal and
    # noise at the base policy predict.
    pilots = {pair: pilot_from(shipped_runs(), shipped_base(pair)) for pair in whole_pairs(shipped_runs())}
    for pilot in pilots.values():
        assert pilot.runs[0].curve.grad_norm[1] == pytest.approx(pilot.base.raw.norm(32, 1), rel=0.25)
        centred = pilot.base.centred
        assert pilot.base.raw.signal == pytest.approx(centred.signal, abs=3 * centred.signal_error)


def test_runs_that_are_missing_or_unknown_are_named(pilot):
    curves = shipped_runs()
    for cells, seed, words in (
        (("x",), 0, "design = 'x' is unknown; allowed: 32x1-minimalist, "),
        (("32x8-paper_text",) * 2, 0, "32x8-paper_text names one twice"),
        (("32x8-paper_text",), 9, "tiny-mod97, 32x8-paper_text, seed 9: 0 runs; a pilot needs one"),
    ):
        with pytest.raises(UserError, match=words):
            pilot_from(curves, pilot.base, cells, seed=seed)
    assert pilot_from(curves, pilot.base, ()).runs == ()


def test_a_file_comes_back(pilot, tmp_path):
    place = pilot_path(tmp_path, PAIR)
    assert read_measurements(place, PilotMeasurements) is None
    write_measurements(place, pilot, {"a": 1})
    again = read_measurements(place, PilotMeasurements, {"a": 1})
    assert repr(again) == repr(pilot) and again.base.train.strict.dtype.kind == "i"
    assert read_measurements(place, PilotMeasurements, {"a": 2}) is None
    assert repr(store.read_pilot(tmp_path, PAIR)) == repr(pilot)


def test_a_pilot_that_is_not_there_is_named_and_a_link_refused(tmp_path, pilot):
    with pytest.raises(UserError, match=f"pilot.json is missing; run `rftlab pilot --pair {PAIR} --results .*` first"):
        store.read_pilot(tmp_path, PAIR)
    said = "has no measurements of its base model in the package; allowed: .*tiny-mod97"
    with pytest.raises(UserError, match=f"pair = 'qwen-math' {said}"):
        shipped_base("qwen-math")
    (tmp_path / "outside").mkdir()
    (tmp_path / "pilot").symlink_to(tmp_path / "outside")
    with pytest.raises(UserError, match=f"^{tmp_path / 'pilot'} is a symbolic link"):
        write_measurements(pilot_path(tmp_path, PAIR), pilot, {})
    assert list((tmp_path / "outside").iterdir()) == []


def test_measurements_are_shipped(pilot, tmp_path, monkeypatch):
    monkeypatch.setattr(store, "SHIPPED", tmp_path / "pilots.json")
    assert store.shipped_pairs() == ()
    for pair in (PAIR, "other"):
        write_measurements(pilot_path(tmp_path, pair, "base"), pilot.base._replace(pair=pair), {})
        ship(tmp_path)
    pilot_path(tmp_path, PAIR, "base").unlink()
    ship(tmp_path)
    assert store.shipped_pairs() == ("other", PAIR) and repr(shipped_base(PAIR)) == repr(pilot.base)


@pytest.mark.parametrize(
    ("pair", "cells", "rounds", "said"),
    [
        ("nobody", PILOT_CELLS, None, "pair = 'nobody' is unknown"),
        (PAIR, ("32x9",), None, "design = '32x9' is unknown; allowed: "),
        (PAIR, PILOT_CELLS, 0, f"rounds = 0; allowed: 1 to 600, the rounds of {PAIR}"),
        (PAIR, PILOT_CELLS, 601, f"rounds = 601; allowed: 1 to 600, the rounds of {PAIR}"),
        ("simulated", PILOT_CELLS, None, "pair = 'simulated' does not run at level llm; allowed: "),
    ],
)
def test_requests_are_checked(pair, cells, rounds, said, monkeypatch):
    monkeypatch.setitem(PAIRS, "simulated", replace(PAIRS["qwen-math"], llm=None))
    with pytest.raises(UserError, match=said):
        wanted(pair, cells, rounds, ProbeConfig())


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        *(({"samples": n}, f"samples = {n}; allowed: 4 or more, and even") for n in (1, 2, 5)),
        ({"train_questions": 15}, "train_questions = 15; allowed: 16 or more"),
        ({"test_questions": 1}, "test_questions = 1; allowed: 2 or more"),
        ({"temperatures": (0.5, -0.1)}, "temperatures = -0.1"),
        ({"temperatures": (math.nan,)}, "temperatures = nan"),
        ({"temperatures": (0.5, 0.5)}, "names one twice"),
        ({"temperature_questions": 1}, "temperature_questions = 1; allowed: 2"),
        ({"temperature_samples": 0}, "temperature_samples = 0; allowed: 1"),
        ({"many_questions": 1}, "many_questions = 1; allowed: 0, or 2 or more"),
        ({"many_samples": 10**6}, "many_samples = 1000000; allowed: "),
    ],
)
def test_what_a_probe_is_asked_for_is_checked(wrong, said):
    with pytest.raises(UserError, match=said):
        ProbeConfig(**wrong)


def test_responses_are_counted():
    rng = np.random.default_rng(0)
    strict, flexible, form, finished = (rng.random((6, 4)) < share for share in (0.3, 0.5, 0.8, 0.9))
    lengths, both = rng.integers(1, 9, (6, 4)), {"well_formed": form, "finished": finished}
    both |= {"flexible": flexible * 1.0, "lengths": lengths}
    counts = count_answers(SimpleNamespace(strict=strict * 1.0, **both))
    assert counts.samples == 4 and counts.strict.tolist() == strict.sum(1).tolist()
    assert counts.well_formed.tolist() == form.sum(1).tolist()
    assert counts.rate("flexible") == pytest.approx(flexible.mean()) and counts.lengths.mean == lengths.mean()
    assert counts.lengths.right == lengths[strict].mean() and counts.lengths.wrong == lengths[~strict].mean()
    assert counts.lengths.cut == pytest.approx(1 - finished.mean())
    assert counts.lengths.quantiles[2] == np.median(lengths)
    assert math.isnan(count_answers(SimpleNamespace(strict=0.0 * strict, **both)).lengths.right)


def test_what_was_measured_is_printed(pilot, printed):
    text = printed(pilot)
    words = ("512 of 2048", "without sampling noise", "noise scale", "run 256x1-paper_text", "7,372,800 rollouts")
    assert [one for one in (*words, f"{pilot.fraction:.2%}") if one not in text] == []
    silent = pilot.base.raw._replace(signal=-0.1, signal_error=0.5)
    assert f"> {silent.variance(1):,.0f}" in printed(pilot._replace(base=pilot.base._replace(raw=silent), runs=()))
    assert spark(np.array([0.0, 0.25, 0.5])) == "▁▄█"


def write_at(place, measurements):
    write_measurements(place, measurements, {})


ODD = checksummed({"config": {}, "content": {"base": 3, "runs": None, "rounds": "x"}}, [2, "PilotMeasurements"])
NO_PILOT = {
    "half": lambda place, other, pilot: place.write_bytes(other.read_bytes()[: other.stat().st_size // 2]),
    "another count": lambda place, other, pilot: place.write_text(
        other.read_text().replace('"samples": 16', '"samples": 17')
    ),
    "a list": lambda place, other, pilot: place.write_text("[]"),
    "deep": lambda place, other, pilot: place.write_text("[" * 100_000),
    "another pair": lambda place, other, pilot: write_at(
        place, pilot._replace(base=pilot.base._replace(pair="tiny-mix97"))
    ),
    "base for pilot": lambda place, other, pilot: write_at(place, pilot.base),
    "other types": lambda place, other, pilot: place.write_bytes(ODD),
}


@pytest.mark.parametrize("kind", [*NO_PILOT, "a folder", "a pipe", "a symbolic link", "a dangling link"])
def test_what_is_no_pilot_is_named_and_removed(pilot, tmp_path, kind):
    place, other = pilot_path(tmp_path, PAIR), pilot_path(tmp_path, "tiny-mix97")
    write_at(other, pilot)
    place.parent.mkdir()
    NO_PILOT[kind](place, other, pilot) if kind in NO_PILOT else PUT[kind](place, other)
    with pytest.raises(store.DamagedPilot, match=r"pilot\.json"):
        read_measurements(place, PilotMeasurements)
    with pytest.raises(UserError, match=f"damaged: .*; run `rftlab pilot --pair {PAIR} --results .*` again"):
        store.read_pilot(tmp_path, PAIR)
    store.discard_file(place)
    assert read_measurements(place, PilotMeasurements) is None and other.is_file()
