"""What stands behind the explorer's page: signal, map, comparison, real runs, files. Without a browser."""

import io
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

from rftlab import Curve, Linear, Simulation, UserError, simulate
from rftlab.sim.environments import build, tabular_world
from rftlab.studies.data.paper.experiments import BASELINE, EXPERIMENTS, published
from rftlab.studies.data.results.reference import shipped_runs
from rftlab.studies.explore import chart as charts
from rftlab.studies.explore import jobs
from rftlab.studies.explore.chart import DARK, FRAME, LIGHT, Frames, ShownCurve, curve_chart, export_chart, short
from rftlab.studies.explore.choices import Choices, chosen_run, from_query
from rftlab.studies.explore.jobs import BATCHES, GROUPS, Bench, HeatCell, Job, cell_colours, heat_cells, luminance
from rftlab.studies.explore.measures import MOST, PUBLIC, gradient_signal, group_signal, real_runs, run_cost, sources_in
from tests.support.web.browser import until
from tests.support.web.explorer_page import HOSTILE

SMALL = Linear(n_train=96, n_test=40, n_features=19, n_answers=3, n_styles=2, base_format=-1.0, nuisance=0.7)


def small(query="", **more):
    """A run of the explorer in a small world."""
    return replace(chosen_run(from_query(query)), environment=replace(SMALL, **more))


def curve(values, rounds=None, spent=8):
    rounds = np.arange(len(values)) * 10 if rounds is None else np.array(rounds)
    columns = dict.fromkeys(Curve._fields, np.full(len(values), 0.25))
    columns |= {"seed": np.zeros(len(values), int), "round": rounds, "rollouts": rounds * spent}
    return Curve(**columns | {"test_pass_at_1": np.array(values), "train_pass_at_1": np.array(values) + 0.1})


def test_the_signal_of_one_arm_bandits_is_exact():
    """Raw reward, K = 1, two arms of which one is right, p = 1/2 everywhere: the score of an answer is +-1/2 in its
    two logits, and only right answers count."""
    world = tabular_world(np.zeros((64, 2)), np.array([[1, 0]] * 64, dtype=bool))
    run = Simulation(design=replace(BASELINE, batch_size=8))
    ratios = [gradient_signal(replace(run, seed=seed), world) for seed in range(40)]
    signal, noise = np.mean(ratios, axis=0)
    whole = signal + noise  # E|g|^2: 8 contexts in a mean, each with p |s|^2 / 64 = (1/2) (1/2) / 64
    assert abs(whole - 8 * 0.25 / 64) < 0.05 * whole
    # contexts share nothing: the mean gradient of a context drawn with chance 1/8 is p (1 - p) (1, -1) / 8 of a round
    exact = 64 * (0.25**2 * 2) / 64 / 64
    assert abs(signal - exact) < 0.25 * exact


def test_more_contexts_make_a_clearer_gradient_and_a_full_window_another_one():
    world = build(SMALL)
    measured = {b: [gradient_signal(replace(small(f"B={b}&K=4"), seed=s), world) for s in range(6)] for b in (4, 48)}
    few, many = (np.mean([signal / noise for signal, noise in pairs]) for pairs in measured.values())
    assert many > 4 * few
    # an empty window would leave a group of one without an advantage
    assert sum(gradient_signal(small("B=16&K=1&window=8"), world)) > 0


def test_silent_groups_are_those_of_the_curves():
    one = curve([0.1, 0.2, 0.3])._replace(zero_signal_fraction=np.array([np.nan, 0.5, 0.7]))
    two = one._replace(zero_signal_fraction=np.array([np.nan, 0.3, 0.9]))
    assert group_signal([one, two], 10) == pytest.approx((0.4, 0.8, 4.0))
    assert np.isnan([group_signal([curve([0.1])], 10), group_signal([], 1)]).all()


def test_costs_count_support_rollouts_and_grow_with_the_batch():
    queries = ("B=256&K=8", "B=256&K=8&M=24")
    plain, more = (run_cost("qwen-gsm8k", chosen_run(from_query(query)), "H100") for query in queries)
    assert (plain.rollouts, more.rollouts) == (2000 * 2048, 2000 * 8192) and more.tokens == 200 * more.rollouts
    assert more.seconds > plain.seconds > 2000 * plain.round_seconds > 0
    slower = run_cost("qwen-gsm8k", chosen_run(from_query(queries[0])), "A100-40")
    assert slower.seconds > plain.seconds


def test_the_map_has_every_cell_once_the_coarse_ones_first():
    cells = heat_cells(Choices(), "rounds", lambda _: 1.0)
    assert {(c.batch, c.group) for c in cells} == {(b, k) for b in BATCHES for k in GROUPS} and len(cells) == 56
    coarse = {(b, k) for b in BATCHES[::2] for k in GROUPS[::2]}
    assert {(c.batch, c.group) for c in cells[: len(coarse)]} == coarse
    assert all(c.run.design.rounds == 2000 for c in cells if c.run)
    equal = heat_cells(Choices(), "rollouts", lambda _: 1.0)
    left = [2000 * 32 * 8 - c.run.design.rounds * c.batch * c.group for c in equal if c.run]
    assert all(0 <= rest < 1024 * 64 for rest in left) and left.count(0) > 40
    assert any(c.run is None and "rounds" in c.why for c in equal)
    seconds = heat_cells(Choices(), "seconds", lambda choices: choices.value("B") / 32)
    assert {c.run.design.rounds for c in seconds if c.run and c.batch == 64} == {1000}

    # an estimator that cannot run a cell leaves it out
    cells = heat_cells(Choices(estimator="dapo"), "rounds", lambda _: 1.0)
    assert {c.group for c in cells if c.run is None and "sampling.tries" in c.why} == {1}


def test_cells_can_be_read_and_lines_stand_out_from_the_page():
    assert len(set(LIGHT)) == len(set(DARK)) == 9
    lines = [(colour, page) for palette, page in ((LIGHT, "#ffffff"), (DARK, "#1b1f23")) for colour in palette]
    for pair in [*lines, *(cell_colours(value, 0, 1) for value in np.linspace(0, 1, 21))]:
        dark, light = sorted(luminance(tuple(int(c[i : i + 2], 16) for i in (1, 3, 5))) for c in pair)
        assert (light + 0.05) / (dark + 0.05) >= 4.5, pair


def test_a_chart_shows_means_where_all_seeds_are_and_compares_where_the_shortest_ends():
    shown = [ShownCurve("now", [curve([0.1, 0.2, 0.4]), curve([0.3, 0.4])], alone=True), ShownCurve("x" * 99, [])]
    chart = curve_chart(shown, "rollouts")
    lines = {line["name"]: line["data"] for line in chart["series"]}
    assert lines["now, test"] == [[0.0, 0.2], [80.0, 0.3]] and lines["now, train"] == [[0.0, 0.3], [80.0, 0.4]]
    assert lines[f"{'x' * 59}…, test"] == [] and len(short("x" * 99)) == 60
    assert curve_chart(shown, "seconds")["series"][0]["data"] == []  # nobody can say how long a round takes
    shown = [ShownCurve("a", [curve([0.1, 0.2, 0.4])]), ShownCurve("b", [curve([0.1, 0.3], rounds=[0, 15])]),
             ShownCurve("late", [curve([0.5], rounds=[20])]), ShownCurve("none", [])]  # fmt: skip
    at, rows = charts.compare_at_equal(shown, "rounds")
    assert (at, [row.name for row in rows]) == (15, ["a", "b", "late"])
    a, b, late = rows
    assert (round(a.equal, 9), a.end, b.equal, np.isnan(late.equal), late.end) == (0.3, 0.4, 0.3, True, 0.5)


@pytest.mark.parametrize(("axis", "end"), [("rounds", 2000), ("rollouts", 512_000), ("seconds", 4000)])
def test_the_axis_is_as_long_as_the_runs_will_be(axis, end):
    begun = ShownCurve("now", [curve([0.1, 0.2])], 2.0, design=chosen_run(Choices()).design)
    assert curve_chart([begun], axis)["xAxis"]["max"] == end
    assert curve_chart([begun, ShownCurve("x", [curve([0.1], [9000])])], "rounds")["xAxis"]["max"] == 9000
    assert curve_chart([], axis)["xAxis"]["max"] == 1


def test_published_reference_and_public_runs_are_laid_over_by_their_design():
    cell = EXPERIMENTS["batch"].cells[0]
    (found,) = real_runs("published", "qwen-gsm8k", cell, None)
    assert found.seeds[0].test_pass_at_1[0] == published("Qwen2.5-0.5B-Instruct", "gsm8k", "test", cell)
    assert (found.seeds[0].round[0], found.seeds[0].rollouts[0], found.measured) == (2000, 2000 * 32 * 8, True)
    assert real_runs("published", "qwen-gsm8k", replace(cell, batch_size=48), None) == []
    assert real_runs("none", "qwen-gsm8k", cell, None) == []
    assert {f"llm:{name}" for name in shipped_runs()["pair"]} < set(sources_in(None))
    (found,) = real_runs("llm:tiny-mix97", "qwen-gsm8k", EXPERIMENTS["batch"].cells[0], None)
    frame = shipped_runs()
    own = frame[(frame["pair"] == "tiny-mix97") & (frame["cell"] == "32x8-paper_text")]
    assert len(found.seeds) == own["seed"].nunique() == 3
    assert sum(len(one.round) for one in found.seeds) == len(own)
    design = replace(BASELINE, batch_size=1, rollouts=64)
    for source in PUBLIC:
        shown = real_runs(source, "qwen-gsm8k", design, None)
        assert len(shown) == MOST and all(one.measured and one.name.startswith(f"{source} 1x64") for one in shown)
    task = real_runs("public:pods/math500", "qwen-gsm8k", design, None)[0].seeds[0].test_pass_at_1
    assert not np.array_equal(task, real_runs(PUBLIC[0], "qwen-gsm8k", design, None)[0].seeds[0].test_pass_at_1)
    assert real_runs(PUBLIC[0], "qwen-gsm8k", replace(design, batch_size=2), None) == []


@pytest.mark.parametrize("source", ["llm:x", "imported:mine", "llm:../..", *HOSTILE])
def test_runs_that_are_not_there_are_a_line(source):
    with pytest.raises(UserError) as error:
        real_runs(source, "qwen-gsm8k", BASELINE, None)
    assert "allowed: none, published, llm:" in str(error.value) and str(error.value).isprintable()
    assert source not in sources_in(None)


def test_files_hold_what_is_shown_by_both_rules_of_grading():
    shown = [ShownCurve("=1+1", [curve([0.1, 0.2])]), *(ShownCurve(tidied, [curve([0.3])]) for tidied in ("$x", "<b>"))]
    table = pd.read_csv(io.BytesIO(export_chart(shown, "rounds", "csv")))
    assert list(table["curve"]) == ["'=1+1", "'=1+1", "$x", "<b>"]
    assert list(table["test_pass_at_1"]) == [0.1, 0.2, 0.3, 0.3]
    assert export_chart(shown, "rounds", "svg") == export_chart(shown, "rounds", "svg")
    assert export_chart(shown, "rounds", "png").startswith(b"\x89PNG")
    assert export_chart([], "rounds", "csv").count(b"\n") == 1

    run = small("rounds=200&K=4")
    measured = simulate(run, build(run.environment)).curve
    table = pd.read_csv(io.BytesIO(export_chart([ShownCurve("now", [measured])], "rollouts", "csv")))
    assert list(table)[4:] == ["train_pass_at_1", "test_pass_at_1", "train_flexible", "test_flexible"]
    for name in list(table)[4:]:
        np.testing.assert_allclose(table[name], getattr(measured, name), rtol=1e-5)  # files have six digits
    assert (table["test_flexible"] > table["test_pass_at_1"]).any()


def test_a_newer_change_cancels_the_older_one():
    bench, long = Bench(1), small("B=64&K=8&rounds=4000")
    old = [bench.start(long) for _ in range(20)]
    for job in old:
        job.stop.set()
    last = bench.start(small("B=8&K=2&rounds=200"))
    until(lambda: last.done, "the last job")
    whole = [one for one in old if one.ended]
    assert last.ended == 3 and last.signal is not None and whole == [] and all(job.done for job in old)
    assert last.share == 1.0


def begun_job(**points):
    """A job whose seeds have so many points: s0=3."""
    run = small("rounds=200")
    job = Job(run)
    job.curves.update({int(name[1:]): curve([0.1] * n) for name, n in points.items()})
    return job


@pytest.mark.parametrize(
    ("points", "abreast", "turns"),
    [
        ({"s0": 5, "s1": 3, "s2": 3}, 2, [0]),
        ({"s0": 5, "s1": 4}, 2, [0, 1]),  # the third is not there yet
        ({"s0": 5, "s1": 1, "s2": 3}, 2, [1, 0]),  # the second has no points to join
        ({"s0": 21, "s1": 9, "s2": 8}, 2, [2, 1]),  # the first is whole
        ({"s0": 5, "s1": 4, "s2": 3}, 3, [0, 2, 1]),
    ],
)
def test_the_first_seed_goes_alone_and_then_the_others_share_what_is_left(points, abreast, turns):
    assert begun_job(**points).ahead(abreast) == turns


@pytest.mark.parametrize("threads", [1, 2, 4])
def test_seeds_in_turn_are_those_of_a_run_alone(threads):
    job = Bench(threads).start(small("B=8&K=4&rounds=200"))
    until(lambda: job.done, "all seeds")
    for seed, found in job.curves.items():
        alone = simulate(replace(job.run, seed=seed)).curve
        assert np.array_equal(found.test_pass_at_1, alone.test_pass_at_1) and len(alone.round) == 21
    assert job.stage == (True, True, True) and sorted(job.curves) == [0, 1, 2]


def test_a_chart_that_grows_is_drawn_now_and_then_and_news_at_once():
    frames = Frames()
    assert frames.due("a", 1, 0.0) and not frames.due("a", 1, 9.0)
    assert frames.due("a", 2, 9.0) and not frames.due("a", 3, 9.0 + FRAME / 2)
    assert frames.due("b", 3, 9.0 + FRAME / 2) and not frames.due("b", 4, 9.0 + FRAME)
    assert frames.due("b", 4, 9.0 + 2 * FRAME)


@pytest.mark.parametrize("error", [UserError("kappa is too large"), ValueError("a\nb"), MemoryError()])
def test_what_goes_wrong_ends_a_job_with_a_line_and_not_the_bench(error, monkeypatch):
    bench, good = Bench(1), small("rounds=200")

    def fail(*_, **__):
        raise error

    with monkeypatch.context() as patch:
        patch.setattr(jobs, "simulate", fail)
        bad, filling = bench.start(good), bench.fill([HeatCell(8, 1, good)])
        until(lambda: bad.done and filling.done, "the bad jobs")
    assert bad.failed and bad.failed.isprintable() and filling.failed == bad.failed
    after = bench.start(good)
    until(lambda: after.done, "the job after it")
    assert after.ended == 3 and not after.failed


def test_a_map_and_curves_that_need_one_world_do_not_wait_for_each_other():
    """A map that waits for its turn with the worlds in its hand would stop all."""
    bench = Bench(2)
    for seed in range(12):
        run = small("rounds=200", world_seed=seed)
        job, filling = bench.start(run), bench.fill([HeatCell(8, 1, run)])
        until(lambda job=job, filling=filling: job.done and filling.done, "a curve and a cell")
        assert job.ended == 3 and len(filling.values) == 1


def test_a_map_waits_for_curves_and_stops():
    bench = Bench(2)
    cells = [cell._replace(run=cell.run and replace(cell.run, environment=SMALL))
             for cell in heat_cells(from_query("rounds=200"), "rounds", lambda _: 1.0) if cell.batch <= 64]  # fmt: skip
    job = bench.fill(cells)
    until(lambda: len(job.values) > 2, "three cells")
    job.stop.set()
    known = dict(job.values)
    assert job.done and set(known) <= {(cell.batch, cell.group) for cell in cells}
    again = bench.fill(cells)
    until(lambda: again.done, "the whole map")
    assert len(again.values) == len(cells) and known.items() <= again.values.items()
