"""Pilots: what they are, their files, older and damaged ones, requests, what is printed and what they cost; no torch
needed."""

import io
import json
import math
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
from rich.console import Console

from dev.pilots import ship
from rftlab import PAIRS, UserError, start_at
from rftlab.llm.probe_config import ProbeConfig
from rftlab.shared.plumbing.folders import remove
from rftlab.studies.data.paper.experiments import EXPERIMENTS
from rftlab.studies.data.results.reference import shipped_runs
from rftlab.studies.data.runs.files import checksummed
from rftlab.studies.data.runs.points import study_points
from rftlab.studies.forecast.evidence import whole_pairs
from rftlab.studies.forecast.law.noise import MeasuredNoise, combine_gradients, pilot_noise
from rftlab.studies.forecast.pilot import run as pilot_run
from rftlab.studies.forecast.pilot import store
from rftlab.studies.forecast.pilot.headroom import TRIES, VOTES, Credit, Headroom, RateAt
from rftlab.studies.forecast.pilot.noise import GradientRatios, RatioEstimate
from rftlab.studies.forecast.pilot.pilot import CELLS, PILOT_CELLS, PilotMeasurements, pilot_from
from rftlab.studies.forecast.pilot.run import count_answers, wanted
from rftlab.studies.forecast.pilot.show import show_pilot, spark
from rftlab.studies.forecast.pilot.store import pilot_path, read_measurements, shipped_base, write_measurements
from tests.support.damage import PUT
from tests.support.machine.here import printed

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


def test_the_base_model_answers_as_the_curves_begin():
    for pair in whole_pairs(shipped_runs()):
        base, curves = shipped_base(pair), shipped_runs().query("pair == @pair and round == 0 and seed == 0")
        for split in ("train", "test"):
            answers = getattr(base, split)
            for name, column in (("strict", f"{split}_pass_at_1"), ("flexible", f"{split}_flexible")):
                rate = answers.rate(name)
                assert curves[column].iloc[0] == pytest.approx(rate, abs=4 * math.sqrt(rate * (1 - rate) / 500))
            assert answers.samples == 16 and len(answers.strict) == {"train": 512, "test": 500}[split]


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


def test_a_pair_of_the_simulator_alone_has_no_pilot(monkeypatch):
    monkeypatch.setitem(PAIRS, "simulated", replace(PAIRS["qwen-math"], llm=None))
    with pytest.raises(UserError, match="pair = 'simulated' does not run at level llm; allowed: "):
        wanted("simulated", PILOT_CELLS, None, ProbeConfig())


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


def test_what_was_measured_is_printed(pilot):
    text = printed(show_pilot, pilot)
    words = ("512 of 2048", "without sampling noise", "noise scale", "run 256x1-paper_text", "7,372,800 rollouts")
    assert [one for one in (*words, f"{pilot.fraction:.2%}") if one not in text] == []
    silent = pilot.base.raw._replace(signal=-0.1, signal_error=0.5)
    alone = pilot._replace(base=pilot.base._replace(raw=silent), runs=())
    assert f"> {silent.variance(1):,.0f}" in printed(show_pilot, alone)
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
    remove(place)
    assert read_measurements(place, PilotMeasurements) is None and other.is_file()


HEADROOM = Headroom(
    (RateAt(1.0, 0.1, 0.01, 20, 4), RateAt(0.0, 0.2, 0.02, 20, 1)),
    (RateAt(4.0, 0.15, 0.02, 20, 16), RateAt(16.0, 0.2, 0.02, 20, 16), RateAt(64.0, 0.4, 0.05, 8, 64)),
    (RateAt(1.0, 0.1, 0.02, 20, 16), RateAt(64.0, 0.9, 0.02, 8, 64)),
    RateAt(8.0, 0.6, 0.02, 20, 16),
    (RateAt(4.0, 0.7, 0.02, 20, 16), RateAt(8.0, 0.6, 0.02, 20, 16)),
    (
        Credit("strict, temperature 1", RateAt(1.0, 0.1, 0.01, 20, 4), None),
        Credit("lenient parser", RateAt(1.0, 0.3, 0.1, 20, 4), RateAt(1.0, 0.2, 0.03, 20, 4)),
        Credit("greedy", RateAt(0.0, 0.0, 0.0, 20, 1), RateAt(0.0, -0.1, 0.03, 20, 1)),
    ),
    RateAt(1.0, 0.5, 0.05, 20, 4),
)
RATIOS = GradientRatios(RatioEstimate(0.08, 0.01, 0.06, 0.1), RatioEstimate(0.9, 0.05, 0.8, 1.0), 512, 16)


def newest(pilot):
    """A pilot with all that is measured now."""
    return pilot._replace(base=pilot.base._replace(ratios=RATIOS, headroom=HEADROOM))


def oldest(pilot):
    """A pilot with what was measured before."""
    return pilot._replace(base=pilot.base._replace(ratios=None, headroom=None, midway=None))


def test_an_older_file_is_read_and_what_is_missing_stays_missing(pilot, tmp_path):
    place, whole = store.pilot_path(tmp_path, PAIR), newest(pilot)
    write_measurements(place, whole, {})
    assert repr(store.read_pilot(tmp_path, PAIR)) == repr(whole)
    content = store.encoded(whole)
    for name in ("ratios", "headroom", "midway"):
        del content["base"][name]
    place.write_bytes(checksummed({"config": {}, "content": content}, [2, "PilotMeasurements"]))
    known = store.read_pilot(tmp_path, PAIR)
    assert repr(known) == repr(oldest(pilot))
    assert pilot_noise(known.base) == combine_gradients(pilot.base.raw, pilot.base.centred)
    assert pilot_noise(whole.base._replace(midway=None)) == MeasuredNoise(0.08, 0.01, 0.9, 0.05)
    later = whole.base.midway.ratios
    assert pilot_noise(whole.base)[::2] == (later.between.value, later.gain.value)
    assert "midway: after 300 rounds of the baseline" in printed(show_pilot, whole)
    text = printed(show_pilot, known)
    assert "were not measured: run `rftlab pilot` again" in text and "maj@" not in text
    del content["base"]["raw"]
    place.write_bytes(checksummed({"config": {}, "content": content}, [2, "PilotMeasurements"]))
    with pytest.raises(store.DamagedPilot, match="KeyError: 'raw'"):
        read_measurements(place, PilotMeasurements)


def test_content_that_makes_no_sense_is_damage(pilot, tmp_path):
    whole, place = newest(pilot), tmp_path / "x.json"
    base, run = whole.base, whole.runs[0]
    unformed, short = np.zeros(512, dtype=np.int64), run.curve._replace(test_flexible=run.curve.test_flexible[1:])
    ratios, strict = RATIOS._replace(between=RatioEstimate(0.2, 0.01, 0.06, 0.1)), base.test.strict + 17
    wrong = {
        r"test\.strict must be 500 whole numbers from 0 to 16": {"test": base.test._replace(strict=strict)},
        "train: 512 questions; allowed: 1 to 511": {"n_train": 511},
        "more right answers in the format": {"train": base.train._replace(well_formed=unformed)},
        "rounds must rise from 0 to 10": {"planned_rounds": 10},
        "columns of unequal lengths": {"curve": short},
        "design y is none of the grid's": {"cell": "y"},
        r"ratios\.between = 0\.2 from 0\.06 to 0\.1": {"ratios": ratios},
        r"headroom\.majority: 1\.2 at 4": {"majority": (RateAt(4.0, 1.2, 0.1, 20, 16),)},
        r"headroom\.tries: nan at 1": {"tries": (RateAt(1.0, math.nan, 0.1, 20, 16),)},
        r"headroom\.temperatures: 0\.1 at -1": {"temperatures": (RateAt(-1.0, 0.1, 0.1, 20, 16),)},
        r"headroom\.silent: 0\.1 at 8, error -1": {"silent": RateAt(8.0, 0.1, -1.0, 20, 16)},
    }
    for said, damage in wrong.items():
        if {*damage} <= {*run._fields}:
            content = whole._replace(runs=(run._replace(**damage),))
        elif {*damage} <= {*base._fields}:
            content = base._replace(**damage)
        else:
            content = base._replace(headroom=HEADROOM._replace(**damage))
        write_measurements(place, content, {})
        with pytest.raises(store.DamagedPilot, match=said):
            read_measurements(place, type(content))


def test_what_the_base_model_could_do_is_printed_and_said(pilot):
    text = " ".join(printed(show_pilot, newest(pilot)).split())
    words = (
        "r of the effective batch 0.080 0.060 to 0.100 512 x 16",
        "Pass@1 at temperature 0 ",
        "maj@16: most of 16 votes right ",
        "pass@64: right once in 64",
        "r: up to about K = 1/r = 6 rollouts",
        "lenient parser 0.300 0.141 to 0.528 +0.20 [+0.14, +0.26] 20 x 4",
        "greedy 0.000 0.000 to 0.180 -0.10 [-0.16, -0.04] 20 x 1",
        "zero-variance groups of 4, base model 0.700",
        "entropy of a token, nats, temperature 1 0.500 0.395 to 0.605 20 x 4",
    )
    assert [one for one in words if one not in text] == []
    few = RATIOS._replace(between=RatioEstimate(0.08, 0.05, -0.02, 0.18), questions=24, responses=4)
    text = printed(show_pilot, pilot._replace(base=pilot.base._replace(ratios=few, headroom=HEADROOM, midway=None)))
    assert "r is not told from 0" in text and "24 questions x 4 responses, fewer than the 256 x 8" in text


def test_a_pilot_says_what_it_costs(pilot, tmp_path, monkeypatch):
    asked = wanted(PAIR, ("32x8-paper_text", "32x1-minimalist"), None, ProbeConfig())
    price = (
        "At most 213,184 rollouts: 22,592 of the base model (train 8,192, test 8,000, temperatures 3,328, many 3,072), "
        "17,792 half way through the baseline's run, 172,800 in 2 runs, whose evaluations come on top. "
        "Stored measurements are not sampled again."
    )

    def shipped_instead(console, *what):
        assert price in console.file.getvalue()  # before anything is sampled
        return pilot.base

    monkeypatch.setattr(pilot_run, "measure_base", shipped_instead)
    monkeypatch.setattr(pilot_run, "_curves", lambda *what: shipped_runs())
    known = pilot_run.pilot(Console(file=io.StringIO(), width=400), asked, tmp_path, 1, quiet=False)
    assert [run.cell for run in known.runs] == list(asked.cells) and repr(store.read_pilot(tmp_path, PAIR)) == repr(
        known
    )


def test_the_tiny_pairs_come_with_all_of_it():
    for pair in ("tiny-mix97", "tiny-mod97", "tiny-sign97"):
        base = store.shipped_base(pair)
        assert base.ratios.questions == 512 and not base.ratios.few and base.ratios.between.low > 0.04
        assert [rate.at for rate in base.headroom.temperatures] == [1, 0.7, 0.5, 0.3, 0]
        assert [rate.at for rate in base.headroom.tries] == list(TRIES)
        assert [rate.at for rate in base.headroom.majority] == list(VOTES)
        assert base.headroom.tries[0].value == pytest.approx(base.test.rate("strict"))
