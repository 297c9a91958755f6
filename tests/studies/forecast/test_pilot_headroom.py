"""What a pilot measures beside pass rates and gradients: its file, older and damaged ones, what is printed, and what it
costs."""

import io
import math

import numpy as np
import pytest
from rich.console import Console

from rftlab.llm.probe_config import ProbeConfig
from rftlab.studies.data.results.reference import shipped_runs
from rftlab.studies.data.runs.files import checksummed
from rftlab.studies.forecast.law.noise import MeasuredNoise, combine_gradients, pilot_noise
from rftlab.studies.forecast.pilot import run as pilot_run
from rftlab.studies.forecast.pilot import store
from rftlab.studies.forecast.pilot.headroom import TRIES, VOTES, Credit, Headroom, RateAt
from rftlab.studies.forecast.pilot.noise import GradientRatios, RatioEstimate
from rftlab.studies.forecast.pilot.pilot import PilotMeasurements
from rftlab.studies.forecast.pilot.run import wanted
from rftlab.studies.forecast.pilot.store import DamagedPilot, read_measurements, read_pilot, write_measurements

PAIR = "tiny-mod97"


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


def test_an_older_file_is_read_and_what_is_missing_stays_missing(pilot, printed, tmp_path):
    place, whole = store.pilot_path(tmp_path, PAIR), newest(pilot)
    write_measurements(place, whole, {})
    assert repr(read_pilot(tmp_path, PAIR)) == repr(whole)
    content = store.encoded(whole)
    for name in ("ratios", "headroom", "midway"):
        del content["base"][name]
    place.write_bytes(checksummed({"config": {}, "content": content}, [2, "PilotMeasurements"]))
    known = read_pilot(tmp_path, PAIR)
    assert repr(known) == repr(oldest(pilot))
    assert pilot_noise(known.base) == combine_gradients(pilot.base.raw, pilot.base.centred)
    assert pilot_noise(whole.base._replace(midway=None)) == MeasuredNoise(0.08, 0.01, 0.9, 0.05)
    later = whole.base.midway.ratios
    assert pilot_noise(whole.base)[::2] == (later.between.value, later.gain.value)
    assert "midway: after 300 rounds of the baseline" in printed(whole)
    text = printed(known)
    assert "were not measured: run `rftlab pilot` again" in text and "maj@" not in text
    del content["base"]["raw"]
    place.write_bytes(checksummed({"config": {}, "content": content}, [2, "PilotMeasurements"]))
    with pytest.raises(DamagedPilot, match="KeyError: 'raw'"):
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
        with pytest.raises(DamagedPilot, match=said):
            read_measurements(place, type(content))


def test_what_the_base_model_could_do_is_printed_and_said(pilot, printed):
    text = " ".join(printed(newest(pilot)).split())
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
    text = printed(pilot._replace(base=pilot.base._replace(ratios=few, headroom=HEADROOM, midway=None)))
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
    assert [run.cell for run in known.runs] == list(asked.cells) and repr(read_pilot(tmp_path, PAIR)) == repr(known)


def test_the_tiny_pairs_come_with_all_of_it():
    """Their base models, as they were measured; a greedy answer is right more often than a sampled one on all three."""
    for pair in ("tiny-mix97", "tiny-mod97", "tiny-sign97"):
        base = store.shipped_base(pair)
        assert base.ratios.questions == 512 and not base.ratios.few and base.ratios.between.low > 0.04
        headroom = base.headroom
        assert [rate.at for rate in headroom.temperatures] == [1, 0.7, 0.5, 0.3, 0]
        assert [rate.at for rate in headroom.tries] == list(TRIES)
        assert [rate.at for rate in headroom.majority] == list(VOTES)
        assert headroom.tries[0].value == pytest.approx(base.test.rate("strict"))
        values = [rate.value for rate in headroom.tries]
        assert values == sorted(values)
        hot, cold = headroom.temperatures[0], headroom.temperatures[-1]
        assert cold.value - hot.value > 2 * math.hypot(cold.error, hot.error)
