"""Pilots: what they are, their files, gradient noise from products, requests; no torch needed."""

import json
import math
import os
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest

from rftlab.llm.probe_config import ProbeConfig
from rftlab.shared.plumbing.errors import UserError
from rftlab.studies.data.paper.experiments import EXPERIMENTS
from rftlab.studies.data.paper.pairs import start_at
from rftlab.studies.data.results.reference import shipped_runs
from rftlab.studies.data.runs.files import checksummed
from rftlab.studies.data.runs.points import study_points
from rftlab.studies.forecast.evidence import whole_pairs
from rftlab.studies.forecast.pilot import store
from rftlab.studies.forecast.pilot.pilot import CELLS, PILOT_CELLS, PilotMeasurements, pilot_from
from rftlab.studies.forecast.pilot.run import count_answers, wanted
from rftlab.studies.forecast.pilot.show import spark
from rftlab.studies.forecast.pilot.store import (
    DamagedPilot,
    discard_file,
    pilot_path,
    read_measurements,
    read_pilot,
    ship,
    shipped_base,
    shipped_pairs,
    write_measurements,
)

PAIR = "tiny-mod97"


# --- what a pilot is ---


def test_the_usual_designs_are_a_twentieth_of_the_grid():
    assert len(CELLS) == 25 and sum(cell.round_rollouts for cell in CELLS.values()) == 12_288
    assert sum(CELLS[cell].round_rollouts for cell in PILOT_CELLS) == 576
    assert (
        CELLS["256x1-paper_text"] == EXPERIMENTS["tradeoff"].cells[-2]
        and CELLS["32x1-minimalist"] == EXPERIMENTS["baseline"].cells[0]
    )
    assert pilot_from(shipped_runs(), shipped_base(PAIR)).fraction < 0.053


def test_shipped_runs_make_a_pilot(pilot):
    usual = start_at(PAIR, "llm").design
    assert (pilot.rounds, pilot.eval_every) == (usual.rounds, usual.eval_every) and [
        run.cell for run in pilot.runs
    ] == list(PILOT_CELLS)
    curves = shipped_runs().query("pair == @PAIR and seed == 0")
    for run in pilot.runs:
        own = curves[curves["cell"] == run.cell]
        assert (
            run.curve.test_pass_at_1.tolist() == own["test_pass_at_1"].tolist()
            and run.curve.test_flexible.tolist() == own["test_flexible"].tolist()
        )
        assert (
            run.design == replace(CELLS[run.cell], rounds=usual.rounds, eval_every=usual.eval_every)
            and not run.diverged
        )
        assert (run.train_questions, run.test_questions, run.responses, run.evaluated) == (500, 500, 1, 13 * 1000 * 2)
        assert run.spent.rollouts == usual.rounds * run.design.round_rollouts == own["rollouts"].max()
    midway = 32 * 300 + 16 * 512
    assert (
        pilot.total.rollouts
        == 576 * 600 + 16 * 1012 + 6400 + midway
        == sum(spent.rollouts for spent in pilot.spent.values())
    )
    assert pilot.fraction == pytest.approx(pilot.total.rollouts / (12_288 * 600))


def test_the_base_model_answers_as_the_curves_begin(pilot):
    for pair in whole_pairs(shipped_runs()):
        base, curves = shipped_base(pair), shipped_runs().query("pair == @pair and round == 0 and seed == 0")
        for split in ("train", "test"):
            answers = getattr(base, split)
            for name, column in (("strict", f"{split}_pass_at_1"), ("flexible", f"{split}_flexible")):
                rate = answers.rate(name)
                assert curves[column].iloc[0] == pytest.approx(rate, abs=4 * math.sqrt(rate * (1 - rate) / 500))
            assert answers.samples == 16 and len(answers.strict) == {"train": 512, "test": 500}[split]


def test_the_gradients_of_the_base_model_are_as_long_as_those_of_a_run():
    """Norms of the first 50 rounds of (32, 1) with the raw reward, which hardly moves, are those that signal and
    noise at the base policy predict."""
    pilots = {pair: pilot_from(shipped_runs(), shipped_base(pair)) for pair in whole_pairs(shipped_runs())}
    for pilot in pilots.values():
        assert pilot.runs[0].curve.grad_norm[1] == pytest.approx(pilot.base.raw.norm(32, 1), rel=0.25)
        assert pilot.base.raw.signal == pytest.approx(
            pilot.base.centred.signal, abs=3 * pilot.base.centred.signal_error
        )


def test_runs_that_are_missing_or_unknown_are_named(pilot):
    curves = shipped_runs()
    with pytest.raises(UserError, match="design = 'x' is unknown; allowed: 32x1-minimalist, "):
        pilot_from(curves, pilot.base, ("x",))
    with pytest.raises(UserError, match="32x8-paper_text names one twice"):
        pilot_from(curves, pilot.base, ("32x8-paper_text",) * 2)
    with pytest.raises(UserError, match="tiny-mod97, 32x8-paper_text, seed 9: 0 runs; a pilot needs one"):
        pilot_from(curves, pilot.base, ("32x8-paper_text",), seed=9)
    assert pilot_from(curves, pilot.base, ()).runs == ()


# --- files ---


def test_a_file_comes_back(pilot, tmp_path):
    place = pilot_path(tmp_path, PAIR)
    assert read_measurements(place, PilotMeasurements) is None
    write_measurements(place, pilot, {"a": 1})
    again = read_measurements(place, PilotMeasurements, {"a": 1})
    assert repr(again) == repr(pilot) and again.base.train.strict.dtype.kind == "i"
    assert read_measurements(place, PilotMeasurements, {"a": 2}) is None and repr(read_pilot(tmp_path, PAIR)) == repr(
        pilot
    )


def test_a_pilot_that_is_not_there_is_named(tmp_path):
    with pytest.raises(UserError, match=f"pilot.json is missing; run `rftlab pilot --pair {PAIR} --results .*` first"):
        read_pilot(tmp_path, PAIR)
    with pytest.raises(
        UserError,
        match=r"pair = 'qwen-math' has no measurements of its base model in the package; allowed: .*tiny-mod97",
    ):
        shipped_base("qwen-math")


def test_measurements_are_shipped(pilot, tmp_path, monkeypatch):
    monkeypatch.setattr(store, "SHIPPED", tmp_path / "pilots.json")
    assert shipped_pairs() == ()
    for pair in (PAIR, "other"):
        write_measurements(pilot_path(tmp_path, pair, "base"), pilot.base._replace(pair=pair), {})
        ship(tmp_path)
    pilot_path(tmp_path, PAIR, "base").unlink()
    ship(tmp_path)
    assert shipped_pairs() == ("other", PAIR) and repr(shipped_base(PAIR)) == repr(pilot.base)


# --- requests ---


def test_requests_are_checked():
    ask = ProbeConfig()
    with pytest.raises(UserError, match="pair = 'nobody' is unknown"):
        wanted("nobody", PILOT_CELLS, None, ask)
    with pytest.raises(UserError, match="design = '32x9' is unknown; allowed: "):
        wanted(PAIR, ("32x9",), None, ask)
    for rounds in (0, 601):
        with pytest.raises(UserError, match=f"rounds = {rounds}; allowed: 1 to 600, the rounds of {PAIR}"):
            wanted(PAIR, PILOT_CELLS, rounds, ask)
    for samples in (1, 2, 5):
        with pytest.raises(UserError, match=f"samples = {samples}; allowed: 4 or more, and even"):
            ProbeConfig(samples=samples)
    with pytest.raises(UserError, match="train_questions = 15; allowed: 16 or more"):
        ProbeConfig(train_questions=15)
    with pytest.raises(UserError, match="test_questions = 1; allowed: 2 or more"):
        ProbeConfig(test_questions=1)
    for wrong, said in (
        ({"temperatures": (0.5, -0.1)}, "temperatures = -0.1"),
        ({"temperatures": (math.nan,)}, "temperatures = nan"),
        ({"temperatures": (0.5, 0.5)}, "names one twice"),
        ({"temperature_questions": 1}, "temperature_questions = 1; allowed: 2"),
        ({"temperature_samples": 0}, "temperature_samples = 0; allowed: 1"),
        ({"many_questions": 1}, "many_questions = 1; allowed: 0, or 2 or more"),
        ({"many_samples": 10**6}, "many_samples = 1000000; allowed: "),
    ):
        with pytest.raises(UserError, match=said):
            ProbeConfig(**wrong)


def test_a_pair_without_a_language_model_is_refused(monkeypatch):
    from rftlab.studies.data.paper.pairs import PAIRS

    monkeypatch.setitem(PAIRS, "simulated", replace(PAIRS["qwen-math"], llm=None))
    with pytest.raises(UserError, match="pair = 'simulated' does not run at level llm; allowed: "):
        wanted("simulated", PILOT_CELLS, None, ProbeConfig())


def test_runs_of_a_pilot_are_those_of_the_grid():
    grid = {point.id for point in study_points(list(EXPERIMENTS.values()), "llm", [PAIR], 1, None)}
    assert {point.id for point in wanted(PAIR, PILOT_CELLS, None, ProbeConfig()).points()} < grid
    short = wanted(PAIR, PILOT_CELLS, 20, ProbeConfig())
    assert not {point.id for point in short.points()} & grid and {
        point.run.design.rounds for point in short.points()
    } == {20}
    assert (
        short.config() != wanted(PAIR, PILOT_CELLS, None, ProbeConfig()).config()
        and short.base_config() == wanted(PAIR, (), None, ProbeConfig()).base_config()
    )
    assert short.base_config() != wanted(PAIR, (), None, ProbeConfig(samples=8)).base_config()
    assert json.loads(json.dumps(short.config())) == short.config()


def test_responses_are_counted():
    rng = np.random.default_rng(0)
    strict, flexible, form, finished = (rng.random((6, 4)) < share for share in (0.3, 0.5, 0.8, 0.9))
    lengths = rng.integers(1, 9, (6, 4))
    counts = count_answers(
        SimpleNamespace(
            strict=strict * 1.0, flexible=flexible * 1.0, well_formed=form, finished=finished, lengths=lengths
        )
    )
    assert (
        counts.samples == 4
        and counts.strict.tolist() == strict.sum(1).tolist()
        and counts.well_formed.tolist() == form.sum(1).tolist()
    )
    assert counts.rate("flexible") == pytest.approx(flexible.mean()) and counts.lengths.mean == lengths.mean()
    assert counts.lengths.right == lengths[strict].mean() and counts.lengths.wrong == lengths[~strict].mean()
    assert counts.lengths.cut == pytest.approx(1 - finished.mean())
    assert counts.lengths.quantiles[2] == np.median(lengths)
    none = count_answers(
        SimpleNamespace(strict=0.0 * strict, flexible=flexible, well_formed=form, finished=finished, lengths=lengths)
    )
    assert math.isnan(none.lengths.right)


# --- what is printed ---


def test_what_was_measured_is_printed(pilot, printed):
    text = printed(pilot)
    for part in (
        "512 of 2048",
        "without sampling noise",
        "noise scale",
        "run 256x1-paper_text",
        "7,372,800 rollouts",
        f"{pilot.fraction:.2%}",
    ):
        assert part in text
    silent = pilot.base.raw._replace(signal=-0.1, signal_error=0.5)
    assert f"> {silent.variance(1):,.0f}" in printed(pilot._replace(base=pilot.base._replace(raw=silent), runs=()))
    assert spark(np.array([0.0, 0.25, 0.5])) == "▁▄█"


@pytest.mark.parametrize(
    "kind",
    ["half", "another count", "a list", "deep", "folder", "pipe", "link", "dangling link", "another pair",
     "base for pilot", "other types"],
)  # fmt: skip
def test_what_is_no_pilot_is_named_and_removed(pilot, tmp_path, kind):
    place, other = pilot_path(tmp_path, PAIR), pilot_path(tmp_path, "tiny-mix97")
    write_measurements(other, pilot, {})
    whole = other.read_text()
    (place.parent).mkdir()
    makers = {
        "half": lambda: place.write_text(whole[: len(whole) // 2]),
        "another count": lambda: place.write_text(whole.replace('"samples": 16', '"samples": 17')),
        "a list": lambda: place.write_text("[]"),
        "deep": lambda: place.write_text("[" * 100_000),
        "folder": place.mkdir,
        "pipe": lambda: os.mkfifo(place),
        "link": lambda: place.symlink_to(other),
        "dangling link": lambda: place.symlink_to("nowhere"),
        "another pair": lambda: write_measurements(
            place, pilot._replace(base=pilot.base._replace(pair="tiny-mix97")), {}
        ),
        "base for pilot": lambda: write_measurements(place, pilot.base, {}),
        "other types": lambda: place.write_bytes(
            checksummed({"config": {}, "content": {"base": 3, "runs": None, "rounds": "x"}}, [2, "PilotMeasurements"])
        ),
    }
    makers[kind]()
    with pytest.raises(DamagedPilot, match=r"pilot\.json"):
        read_measurements(place, PilotMeasurements)
    with pytest.raises(UserError, match=f"damaged: .*; run `rftlab pilot --pair {PAIR} --results .*` again"):
        read_pilot(tmp_path, PAIR)
    discard_file(place)
    assert read_measurements(place, PilotMeasurements) is None and other.is_file()


def test_a_folder_of_pilots_that_is_a_link_is_refused(pilot, tmp_path):
    (tmp_path / "outside").mkdir()
    (tmp_path / "pilot").symlink_to(tmp_path / "outside")
    with pytest.raises(UserError, match=f"^{tmp_path / 'pilot'} is a symbolic link"):
        write_measurements(pilot_path(tmp_path, PAIR), pilot, {})
    assert list((tmp_path / "outside").iterdir()) == []
