"""What a pilot measures beside pass rates and gradients: its file, older and damaged ones, what is printed, and what it
costs."""

import io
import math

import numpy as np
import pandas as pd
import pytest
from rich.console import Console

from rftlab.llm.probe_config import ProbeConfig
from rftlab.studies.data.results.reference import shipped
from rftlab.studies.data.runs.integrity import checksummed
from rftlab.studies.data.runs.store import open_store, point_folder
from rftlab.studies.forecast.law.noise import MeasuredNoise, combine_gradients, pilot_noise
from rftlab.studies.forecast.pilot import run as pilot_run
from rftlab.studies.forecast.pilot import store
from rftlab.studies.forecast.pilot.figures import headroom_figure
from rftlab.studies.forecast.pilot.headroom import TRIES, VOTES, Credit, Headroom, RateAt, RewardCorrelation
from rftlab.studies.forecast.pilot.noise import GradientRatios, RatioEstimate
from rftlab.studies.forecast.pilot.pilot import PilotMeasurements, early_silence, pilot_from
from rftlab.studies.forecast.pilot.run import wanted
from rftlab.studies.forecast.pilot.store import DamagedPilot, pilot_path, read, read_pilot, shipped_base, write

PAIR = "tiny-mod97"


HEADROOM = Headroom(
    (RateAt(1.0, 0.1, 0.01, 20, 4), RateAt(0.0, 0.2, 0.02, 20, 1)),
    (RateAt(4.0, 0.15, 0.02, 20, 16), RateAt(16.0, 0.2, 0.02, 20, 16), RateAt(64.0, 0.4, 0.05, 8, 64)),
    (RateAt(1.0, 0.1, 0.02, 20, 16), RateAt(64.0, 0.9, 0.02, 8, 64)),
    RewardCorrelation(0.1, 0.02, 20),
    RewardCorrelation(0.3, math.nan, 4),
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
EARLY_SILENT = RateAt(8.0, 0.4, 0.05, 160, 8)


def newest(pilot):
    """A pilot with all that is measured now."""
    runs = tuple(
        run._replace(early_silent=EARLY_SILENT if run.cell == "32x8-paper_text" else None) for run in pilot.runs
    )
    return pilot._replace(base=pilot.base._replace(ratios=RATIOS, headroom=HEADROOM), runs=runs)


def oldest(pilot):
    """A pilot with what was measured before."""
    runs = tuple(run._replace(early_silent=None) for run in pilot.runs)
    return pilot._replace(base=pilot.base._replace(ratios=None, headroom=None, midway=None), runs=runs)


def test_an_older_file_is_read_and_what_is_missing_stays_missing(pilot, printed, tmp_path):
    place, whole = pilot_path(tmp_path, PAIR), newest(pilot)
    write(place, whole, {})
    assert repr(read_pilot(tmp_path, PAIR)) == repr(whole)
    content = store.encoded(whole)
    for name in ("ratios", "headroom", "midway"):
        del content["base"][name]
    for run in content["runs"]:
        del run["early_silent"]
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
        read(place, PilotMeasurements)


def test_silence_of_early_rounds_is_the_curve_s_where_it_is_evaluated_then(printed):
    """SmolLM2's runs are, every five rounds; those of `tiny` are not."""
    known = pilot_from(shipped(), shipped_base("smollm2-words"), ("32x1-minimalist", "32x8-paper_text"))
    alone, group = (run.early_silent for run in known.runs)
    assert alone is None and group == RateAt(8.0, 0.69375, pytest.approx(math.sqrt(0.69375 * 0.30625 / 160)), 160, 8)
    curve, design = known.runs[1].curve, known.runs[1].design
    assert curve.round[:4].tolist() == [0, 5, 10, 15]
    fine = curve._replace(
        round=np.array([0, 5, 7, 10, 20]), zero_signal_fraction=np.array([np.nan, 1.0, 0.5, 0.1, 1.0])
    )
    assert early_silence(fine, design).value == pytest.approx(0.4 * 0.5 + 0.6 * 0.1)
    for rounds in ([0, 4, 7, 10, 20], [0, 5, 7, 11, 20]):
        assert early_silence(fine._replace(round=np.array(rounds)), design) is None
    assert early_silence(fine._replace(zero_signal_fraction=np.full(5, np.nan)), design) is None
    assert pilot_run.with_early(None, known.runs[1], None) is known.runs[1]  # nothing else is read
    assert "after five to ten rounds 69% in 32x8-paper_text" in printed(known._replace(base=newest(known).base))


def test_content_that_makes_no_sense_is_damage(pilot, tmp_path):
    whole, place = newest(pilot), tmp_path / "x.json"
    base, run = whole.base, whole.runs[0]
    group = next(run for run in whole.runs if run.cell == "32x8-paper_text")
    wrong = {
        r"test\.strict must be 500 whole numbers from 0 to 16": base._replace(
            test=base.test._replace(strict=base.test.strict + 17)
        ),
        "train: 512 questions; allowed: 1 to 511": base._replace(n_train=511),
        "more right answers in the format": base._replace(
            train=base.train._replace(well_formed=np.zeros(512, dtype=np.int64))
        ),
        "rounds must rise from 0 to 10": whole._replace(runs=(run._replace(planned_rounds=10),)),
        "columns of unequal lengths": whole._replace(
            runs=(run._replace(curve=run.curve._replace(test_flexible=run.curve.test_flexible[1:])),)
        ),
        "design y is none of the grid's": whole._replace(runs=(run._replace(cell="y"),)),
        r"ratios\.between = 0\.2 from 0\.06 to 0\.1": base._replace(
            ratios=RATIOS._replace(between=RatioEstimate(0.2, 0.01, 0.06, 0.1))
        ),
        "32x8-paper_text, early_silent: 2 at 8": whole._replace(
            runs=(group._replace(early_silent=RateAt(8.0, 2.0, 0.1, 20, 8)),)
        ),
    }
    for said, damage in (
        (r"\.majority: 1\.2 at 4", {"majority": (RateAt(4.0, 1.2, 0.1, 20, 16),)}),
        (r"\.tries: nan at 1", {"tries": (RateAt(1.0, math.nan, 0.1, 20, 16),)}),
        (r"\.temperatures: 0\.1 at -1", {"temperatures": (RateAt(-1.0, 0.1, 0.1, 20, 16),)}),
        (r"\.silent: 0\.1 at 8, error -1", {"silent": RateAt(8.0, 0.1, -1.0, 20, 16)}),
        (r"\.within_question is no number", {"within_question": RewardCorrelation(math.nan, 0.1, 20)}),
    ):
        wrong["headroom" + said] = base._replace(headroom=HEADROOM._replace(**damage))
    for said, content in wrong.items():
        write(place, content, {})
        with pytest.raises(DamagedPilot, match=said):
            read(place, type(content))


def test_a_pilot_says_what_it_costs_and_how_many_groups_of_early_rounds_are_silent(pilot, tmp_path, monkeypatch):
    asked = wanted(PAIR, ("32x8-paper_text", "32x1-minimalist"), None, ProbeConfig())
    price = (
        "At most 213,184 rollouts: 22,592 of the base model (train 8,192, test 8,000, temperatures 3,328, many 3,072), "
        "17,792 half way through the baseline's run, 172,800 in 2 runs, whose evaluations come on top. "
        "What is there already is not sampled again."
    )
    rng, (first, second) = np.random.default_rng(0), asked.points()
    told = []
    open_store(tmp_path)
    for point, size in ((first, 8), (second, 1)):
        place = point_folder(tmp_path, point) / "rollouts"
        place.mkdir(parents=True)
        keys = pd.MultiIndex.from_product(
            [range(1, 12), range(4), range(size + 1)], names=["round", "prompt", "rollout"]
        )
        rows = keys.to_frame(index=False)
        rows = rows.assign(
            role=np.where(rows["rollout"] == size, "support", "trained"),
            reward=(rng.random(len(rows)) < 0.2).astype(float),
            advantage=0.0,
            finished=True,
        )
        rows.to_parquet(place / "000001-000011.parquet")
        own = rows[rows["round"].between(6, 10) & (rows["role"] == "trained")].groupby(["round", "prompt"])["reward"]
        told.append((own.nunique() == 1).mean())

    def shipped_instead(console, *what):
        assert price in console.file.getvalue()  # before anything is sampled
        return pilot.base

    monkeypatch.setattr(pilot_run, "measure_base", shipped_instead)
    monkeypatch.setattr(pilot_run, "_curves", lambda *what: shipped())
    known = pilot_run.pilot(Console(file=io.StringIO(), width=400), asked, tmp_path, 1, quiet=False)
    silent, alone = (run.early_silent for run in known.runs)
    assert alone is None and (silent.at, silent.questions, silent.value) == (8, 20, pytest.approx(told[0]))
    assert 0 < silent.value < 1 and read_pilot(tmp_path, PAIR).runs[0].early_silent == silent
    monkeypatch.setattr(pilot_run, "EARLY", (20, 30))
    assert pilot_run.with_early(tmp_path, oldest(known).runs[0], first).early_silent is None


def test_what_the_base_model_could_do_is_printed_and_said(pilot, printed):
    text = " ".join(printed(newest(pilot)).split())
    for part in (
        "r of the effective batch 0.080 0.060 to 0.100 512 x 16",
        "Pass@1 at temperature 0 ",
        "maj@16: most of 16 votes right ",
        "pass@64: right once in 64",
        "zero-variance groups of 8, rounds 6 to 10 of 32x8-paper_text",
        "r: up to about K = 1/r = 6 rollouts",
        "colder is better (0.200 at 0, 0.100 at 1)",
        "can take Pass@1 up to about 0.20 (a vote of 16 has 0.20, temperature 0 0.20)",
        "The vote is not settled: 0.40 of 64 votes.",
        "pass@64: 90% of questions",
        "10% of the variance of a reward lies between questions",
        "60% of groups of 8 of the base model teach nothing, after five to ten rounds 40% in 32x8-paper_text",
        "lenient parser 0.300 0.141 to 0.528 +0.20 [+0.14, +0.26] 20 x 4",
        "greedy 0.000 0.000 to 0.180 -0.10 [-0.16, -0.04] 20 x 1",
        "zero-variance groups of 4, base model 0.700",
        "entropy of a token, nats, temperature 1 0.500 0.395 to 0.605 20 x 4",
    ):
        assert part in text, part
    few = RATIOS._replace(between=RatioEstimate(0.08, 0.05, -0.02, 0.18), questions=24, responses=4)
    cold = HEADROOM._replace(temperatures=(RateAt(1.0, 0.2, 0.01, 20, 4), RateAt(0.0, 0.1, 0.01, 20, 1)))
    text = printed(pilot._replace(base=pilot.base._replace(ratios=few, headroom=cold, midway=None)))
    assert "r is not told from 0" in text and "24 questions x 4 responses, fewer than the 256 x 8" in text
    assert "colder is worse (0.100 at 0, 0.200 at 1)" in text
    close = HEADROOM._replace(temperatures=(RateAt(1.0, 0.1, 0.1, 20, 4), RateAt(0.0, 0.2, 0.1, 20, 1)), majority=())
    text = printed(pilot._replace(base=pilot.base._replace(headroom=close)))
    assert "no sure difference (0.200 at 0, 0.100 at 1)" in text and "maj@" not in text
    unsure = HEADROOM._replace(majority=HEADROOM.majority[:1], temperatures=(RateAt(1.0, 0.1, 0.1, 20, 4),))
    text = printed(pilot._replace(base=pilot.base._replace(headroom=unsure)))
    assert "maj@4: sharpening alone" in text and "up to about 0.15 (a vote of 4 has 0.15, temperature 1 0.10)" in text


def test_the_figure_has_every_number_and_stands_without_some():
    chart, numbers = headroom_figure(PAIR, HEADROOM)
    assert numbers["kind"].tolist() == ["temperature"] * 2 + ["pass@k"] * 2 + ["maj@k"] * 3
    assert numbers["value"].tolist() == [0.1, 0.2, 0.1, 0.9, 0.15, 0.2, 0.4]
    left, right = chart.panels
    (line,) = left.series
    assert (line.x.tolist(), line.y.tolist()) == ([1.0, 0.0], [0.1, 0.2]) and left.x.low > left.x.high
    assert [remark.text for remark in right.remarks] == ["pass@k", "maj@k"]
    _, numbers = headroom_figure(PAIR, HEADROOM._replace(temperatures=(), majority=(), tries=()))
    assert numbers.empty


def test_the_tiny_pairs_come_with_all_of_it():
    """Their base models, as they were measured; a greedy answer is right more often than a sampled one on all three."""
    for pair in ("tiny-mix97", "tiny-mod97", "tiny-sign97"):
        base = shipped_base(pair)
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
        mean = base.train.rate("strict")
        naive = base.train.strict.var() / 16**2 / mean / (1 - mean)
        assert 0 < headroom.within_question.value < naive  # sampling noise is taken out
        assert (headroom.within_kind is not None) == (pair == "tiny-sign97")
