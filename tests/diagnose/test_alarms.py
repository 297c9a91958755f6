"""Alarms: against a slow twin, on runs that go on, on healthy runs with shuffled rounds, and their counts by hand."""

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from scipy.stats import beta

from dev.diagnose_cases import chosen_threshold, left_out_rates
from dev.known_worlds import run_of
from rftlab import Design, Linear, Optimizer, Simulation, preset, simulate
from rftlab.studies.analysis.diagnose import alarms as module
from rftlab.studies.analysis.diagnose import diagnose
from rftlab.studies.analysis.diagnose.alarms import ALARMS, ANY, alarm_rates, alarms_so_far, first_fired, score_runs
from rftlab.studies.analysis.diagnose.observed import Line, ObservedRun, Unjudged, observe
from rftlab.studies.readers.read import read_logs
from rftlab.studies.readers.run import ImportedRun, KnownDesign
from tests.support.logs.formats import runs_folder
from tests.support.logs.planted import LIMIT, after, changed, healthy, log_of

BY_KIND = {rule.kind.removeprefix("alarm: "): rule for rule in ALARMS}
METRICS = tuple(dict.fromkeys(rule.metric for rule in ALARMS))
needs_runs = pytest.mark.skipif(runs_folder() is None, reason="needs the public runs, which do not come with it")


def naive(kind: str, values: list[float], at: int, window: int = 5) -> float:
    """What an alarm compares after `at` + 1 values, the slow way; nan where it compares nothing."""
    if at + 1 < window:
        return float("nan")
    now = sorted(values[at + 1 - window : at + 1])[window // 2]
    first, early = sorted(values[:3]), max(sorted(values[i : i + window])[window // 2] for i in range(11 - window))
    if kind == "short responses":
        return now / first[2]
    if kind == "long responses":
        return now / LIMIT if first[2] < 0.85 * LIMIT else float("nan")
    if kind == "gradient norm":
        return now / early if at >= 10 else float("nan")
    if kind == "clipped tokens":
        return now
    return now / first[1] if now > 0.8 else float("nan")


def twins(kind: str, window: int = 5) -> tuple[list[float], list[float]]:
    values = np.random.default_rng(0).lognormal(0.0, 0.7, 40)
    values *= 500 if "responses" in kind else 1
    design = KnownDesign(response_limit=LIMIT)
    slow = [naive(kind, values.tolist(), at, window) for at in range(len(values))]
    fast = BY_KIND[kind].measure(values, design)
    assert fast is not None
    return fast.tolist(), slow


@pytest.mark.parametrize("kind", BY_KIND)
def test_what_is_compared_is_that_of_a_slow_twin_and_not_of_another_window(kind):
    fast, slow = twins(kind)
    assert fast == pytest.approx(slow, nan_ok=True) and np.isfinite(fast).sum() > 5
    assert fast != pytest.approx(twins(kind, 7)[1], nan_ok=True)


BREAKS = {
    "short responses": changed("train", "response_length", after(0.5, 60)),
    "long responses": changed("train", "response_length", after(0.5, 950)),
    "gradient norm": changed("train", "grad_norm", after(0.5, 9.0)),
    "clipped tokens": changed("train", "clip_fraction", after(0.5, 0.4)),
    "entropy": changed("train", "entropy", after(0.5, 2.0)),
}


@pytest.mark.parametrize("kind", BREAKS)
def test_a_run_that_goes_on_is_judged_as_the_finished_one(kind):
    """Three of five values from round 101 on are beyond the threshold in round 103: not a round earlier."""
    columns, design = BREAKS[kind](healthy()), KnownDesign(response_limit=LIMIT)
    rounds = [{metric: columns["train", metric][at] for metric in METRICS} for at in range(200)]
    so_far = [alarms_so_far(rounds[:count], design) for count in (102, 103, 104, 200)]
    fired = [[each.rule.kind for each in said if isinstance(each, module.FiredAlarm)] for said in so_far]
    assert fired == [[], *[[f"alarm: {kind}"]] * 3]
    (whole,) = (first_fired(rule, observe(log_of(columns))) for rule in ALARMS if rule.kind == f"alarm: {kind}")
    assert whole == so_far[1][0] == so_far[3][0] and whole.round == 103


def test_rounds_have_numbers_and_gaps_and_what_the_design_does_not_allow_is_said():
    rounds = [{"round": 10 * at, "entropy": 0.5 if at < 8 else 2.0} for at in range(1, 13)]
    rounds[3]["entropy"] = float("nan")
    fired, *unjudged = sorted(alarms_so_far(rounds), key=lambda each: isinstance(each, Unjudged))
    assert (fired.round, fired.value) == (100, 4.0)
    assert [each.kind for each in unjudged] == [rule.kind for rule in ALARMS if rule.metric != "entropy"]
    assert len(alarms_so_far([])) == len(ALARMS) and len(alarms_so_far([{}])) == len(ALARMS)
    seen = observe(log_of(healthy()))
    for design, kind in ((KnownDesign(), "long responses"), (KnownDesign(loss="clip 0.0003"), "clipped tokens")):
        said = first_fired(BY_KIND[kind], replace(seen, design=design))
        assert isinstance(said, Unjudged) and said.needs
    near = observe(log_of(changed("train", "response_length", after(0.0, 1000))(healthy())))
    assert isinstance(first_fired(BY_KIND["long responses"], near), Unjudged), "it began at its limit"


def test_zeros_large_numbers_and_shuffled_rounds_raise_no_alarm():
    for level in (0.0, 1e308):
        lines = {("train", metric): np.full(50, level) for metric in METRICS if metric != "clip_fraction"}
        assert not any("alarm" in found.kind for found in diagnose(log_of(lines)).findings if level == 0.0)
        assert diagnose(log_of(lines)).name == "planted"
    runs = [observe(log_of(healthy(seed))) for seed in range(10)]
    assert [false_rate(rule, runs, 5) for rule in ALARMS] == [0.0] * len(ALARMS)
    broken = [observe(log_of(BREAKS["entropy"](healthy(seed)))) for seed in range(10)]
    assert false_rate(BY_KIND["entropy"], broken, 5) > 0.0


def false_rate(rule: module.AlarmRule, runs: list[ObservedRun], times: int) -> float:
    """Share of runs with shuffled rounds on which an alarm fires."""
    draw, fired = np.random.default_rng(0), []
    for seen in (seen for seen in runs if module.compared_values(rule, seen) is not None):
        for _ in range(times):
            lines = {
                key: Line(line.metric, line.rounds, line.values[draw.permutation(len(line))], line.counts)
                for key, line in seen.lines.items()
            }
            fired.append(isinstance(first_fired(rule, replace(seen, lines=lines)), module.FiredAlarm))
    return float(np.mean(fired))


def made_up(name: str, reward: float, *changes) -> ImportedRun:
    """A run whose reward is that from round 121 on."""
    columns = changed("train", "pass_at_1", after(0.6, reward))(healthy())
    del columns["test", "pass_at_1"]
    for change in changes:
        columns = change(columns)
    return replace(log_of(columns), name=name)


def test_rates_are_counted_by_hand():
    """Of two that fail one is foretold, 18 rounds before; of two that hold one raises a false alarm; one ends below
    half of what those reach, and is not counted."""
    poor = log_of({("train", "pass_at_1"): np.linspace(0.05, 0.1, 200), ("train", "entropy"): np.full(200, 2.0)})
    runs = [made_up("foretold", 0.01, BREAKS["entropy"]), made_up("fails", 0.1), made_up("holds", 0.5)]
    runs += [made_up("alarms", 0.5, BREAKS["entropy"]), replace(poor, name="poor")]
    scored = [(one.seen.name, one.since) for one in score_runs([("a", run) for run in runs])]
    assert scored == [("foretold", 121), ("fails", 121), ("holds", None), ("alarms", None)]
    rates = alarm_rates([("a", run) for run in runs]).set_index("alarm")
    expected = {"failing": 2, "hits": 1, "early": 1, "rounds_before": 18, "healthy": 2, "alarms": 1}
    assert rates.loc["alarm: entropy"].to_dict() == expected == rates.loc[ANY].to_dict()
    assert rates.loc["alarm: clipped tokens", ["failing", "hits", "healthy", "alarms"]].tolist() == [2, 0, 2, 0]


def test_a_threshold_is_chosen_where_it_parts_and_without_the_source_that_it_is_scored_on():
    runs = [(source, made_up(f"{source} {seed}", 0.01, BREAKS["entropy"])) for source in "ab" for seed in range(2)]
    runs += [(source, made_up(f"{source} holds", 0.5)) for source in "ab"]
    rule = BY_KIND["entropy"]
    rows = left_out_rates(runs).query("alarm == 'alarm: entropy'")
    assert rows[["left out", "hits", "failing"]].to_numpy().tolist() == [["a", 2, 2], ["b", 2, 2]]
    others = [one for one in score_runs(runs) if one.source == "b"]
    assert rows["threshold"].tolist()[0] == chosen_threshold(rule, others)
    assert chosen_threshold(rule, [one for one in others if one.since is None]) is None


def test_every_alarm_says_how_often_it_was_right():
    assert all(module.describe_rates(rule.kind).startswith("public runs: fired on ") for rule in ALARMS)
    with module.RATES.open("rb") as file:
        assert pd.read_csv(file)["alarm"].tolist() == [*(rule.kind for rule in ALARMS), ANY]


def public_runs() -> list[tuple[str, ImportedRun]]:
    folder = runs_folder()
    assert folder is not None
    logs = read_logs([folder / "curves.csv"]) + read_logs([folder.parent / "runs2" / "curves.csv"])
    return [(run.name.partition("/")[0], run) for run in logs]


@needs_runs
def test_the_table_that_is_shipped_is_that_of_the_public_runs():
    with module.RATES.open("rb") as file:
        pd.testing.assert_frame_equal(pd.read_csv(file), alarm_rates(public_runs()), check_dtype=False)


@needs_runs
def test_public_runs_with_shuffled_rounds_alarm_no_more_than_is_said():
    """At most the upper end of the 95% interval of the rate of false alarms (Clopper and Pearson)."""
    runs = [one.seen for one in score_runs(public_runs()) if one.since is None]
    rates = alarm_rates(public_runs()).set_index("alarm")
    for rule in ALARMS:
        healthy_runs, alarms = rates.loc[rule.kind, ["healthy", "alarms"]].astype(int)
        most = beta.ppf(0.95, alarms + 1, healthy_runs - alarms)
        assert false_rate(rule, runs, 5) <= most, rule.kind


def collapse_of(run: ImportedRun):
    (collapse,) = (one for one in diagnose(run).findings if one.kind == "collapse")
    return collapse


def test_short_and_well_formed_is_told_from_broken():
    gone, short = changed("train", "pass_at_1", after(0.6, 0.1)), changed("train", "response_length", after(0.5, 14))
    for change, what, advice in (
        (short, "stayed well formed", "token mean"),
        (lambda c: changed("test", "format_rate", after(0.5, 0.01))(short(c)), "malformed", "lower learning rate"),
        (changed("train", "response_length", after(0.5, 1000)), "are long", "lower learning rate"),
    ):
        collapse = collapse_of(log_of(change(gone(healthy()))))
        assert what in collapse.what and advice in collapse.advice
    bare = {key: values for key, values in gone(healthy()).items() if key == ("train", "pass_at_1")}
    assert "unknown without response_length and format_rate" in collapse_of(log_of(bare)).evidence[-1]


@needs_runs
def test_kinds_of_collapse_in_public_runs():
    named = {run.name: run for _, run in public_runs()}
    for name, word in {
        "shibuki/no-baseline": "short",
        "shibuki/offpolicy-broad-e8-tb256": "malformed",
        "shibuki/offpolicy-broad-e16-tb256": "malformed",
        "pods/gsm8k-n64-m16-maxreward/r06": "long",
    }.items():
        assert word in collapse_of(named[name]).what
    assert "advantage raw" in diagnose(named["shibuki/no-baseline"]).findings[0].evidence[-1]


@pytest.mark.parametrize(("times", "breaks"), [(1, False), (4, True)])
def test_a_world_with_damage_collapses_at_a_high_rate_and_many_passes(times, breaks):
    world = Linear(n_train=400, n_test=400, n_features=32, base_format=0.0, damage=0.002 / 0.005**2)
    design = Design(32, 8, estimator=preset("grpo"), rounds=120, eval_every=2, epochs=8)
    run = Simulation(world, design, Optimizer("adam", 0.005 * times), evaluation="sampled")
    log = run_of("damaged", simulate(run).curve.to_frame(), 400, KnownDesign(prompts=32, rollouts=8))
    assert ("collapse" in [found.kind for found in diagnose(log).findings]) is breaks
