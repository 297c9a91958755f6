"""Experiments, published numbers, intervals and claims."""

import re
from io import StringIO

import numpy as np
import pandas as pd
import pytest
from rich.console import Console
from scipy import stats

from rftlab.shared.errors import UserError
from rftlab.studies.cli.run import parse_run
from rftlab.studies.paper.experiments import EXPERIMENTS, cells_of, experiment, label
from rftlab.studies.paper.pairs import PAIRS, pair
from rftlab.studies.paper.published import endpoints, published
from rftlab.studies.results.claims import CLAIMS, FAILS, HOLDS, NOT_APPLICABLE, UNDECIDED, ClaimPart, judge, verdict_of
from rftlab.studies.results.endpoints import agreement, endpoint_table, finals
from rftlab.studies.results.stats import interval


def shape(name):
    return [(c.batch_size, c.rollouts, c.support_rollouts, c.replay_window) for c in EXPERIMENTS[name].cells]


def test_cells_are_those_of_the_paper():
    assert shape("baseline") == [(32, 1, 0, 0)]
    assert shape("advantage") == [(32, 1, 0, 0), (32, 1, 7, 0)]
    assert shape("rollouts") == [(32, 1, 7, 0), (32, 8, 0, 0), (32, 16, 0, 0), (32, 32, 0, 0), (32, 64, 0, 0)]
    assert shape("batch") == [(32, 8, 0, 0), (64, 8, 0, 0), (128, 8, 0, 0)]
    assert all(b * k == 256 for b, k, _, _ in shape("tradeoff")) and shape("tradeoff")[-1] == (256, 1, 0, 8)
    assert shape("replay_text") == [(32, 8, 0, 0), (32, 4, 0, 8), (32, 2, 0, 8), (32, 1, 0, 8)]
    assert shape("replay_code") == [(32, 8, 0, 0), (64, 4, 0, 8), (128, 2, 0, 8), (256, 1, 0, 8)]
    assert shape("ceiling") == [(b, 1, 0, 8) for b in (256, 512, 1024, 2048)]
    others = [c for e in EXPERIMENTS.values() for c in e.cells if label(c) != label(EXPERIMENTS["baseline"].cells[0])]
    kinds = {(c.estimator.advantage.baseline, c.estimator.advantage.scale) for c in others}
    assert kinds == {("group_mean", "group_std")}


def test_every_published_endpoint_belongs_to_a_cell():
    cells = [None, *cells_of(list(EXPERIMENTS.values()))]
    for e in endpoints():
        found = [published(e.model, e.dataset, e.split, cell) for cell in cells]
        assert e.pass_at_1 in found
    assert len(endpoints()) == 108


def test_published_looks_up_by_what_ran():
    qwen = pair("qwen-gsm8k")
    replay = EXPERIMENTS["ceiling"].cells[-1]
    assert published(qwen.model, "gsm8k", "train", replay) == 0.92
    assert published(qwen.model, "gsm8k", "train", None) == 0.01
    assert published(qwen.model, "gsm8k", "test", EXPERIMENTS["tradeoff"].cells[-2]) == 0.40
    assert published(qwen.model, "math", "test", replay) == 0.37
    assert published(qwen.model, "math", "test", EXPERIMENTS["tradeoff"].cells[0]) is None  # (1, 256)


def difference(name: str, after: str, before: str) -> float:
    """Of two published test numbers."""
    known, cells = pair(name), {label(c): c for c in cells_of(list(EXPERIMENTS.values()))} | {"base": None}
    ends = [published(known.model, "math", "test", cells[cell]) for cell in (after, before)]
    return round(ends[0] - ends[1], 2)


def test_what_the_report_says_of_the_papers_own_math_numbers():
    first = difference("llama-math", "32x8-paper_text", "32x1+7-paper_text")
    assert round(difference("llama-math", "32x64-paper_text", "32x8-paper_text") - first, 2) == 0.02
    assert difference("olmo-math", "32x1-minimalist", "base") == 0
    assert difference("olmo-math", "2048x1w8-paper_text", "base") == 0.04


@pytest.mark.parametrize(("function", "kind"), [(experiment, "study"), (pair, "pair")])
def test_unknown_names_list_the_known_ones(function, kind):
    with pytest.raises(UserError, match=f"{kind} = 'nonsense' is unknown; allowed: "):
        function("nonsense")


def test_interval_is_the_t_interval():
    values = np.array([0.1, 0.4, 0.35, 0.2, 0.3])
    low, high = stats.t.interval(0.95, 4, loc=values.mean(), scale=stats.sem(values))
    assert interval(values) == pytest.approx((values.mean(), low, high), rel=1e-12)
    assert interval(values[:1]) == (0.1, -np.inf, np.inf)


def test_interval_covers_as_often_as_it_says():
    rng = np.random.default_rng(0)
    covered = [known.low <= 0 <= known.high for known in (interval(rng.standard_normal(5)) for _ in range(4000))]
    assert abs(np.mean(covered) - 0.95) < 0.015


@pytest.mark.parametrize(
    ("values", "low", "high", "verdict"),
    [
        ([0.05, 0.06, 0.055], 0.0, 0.1, HOLDS),
        ([0.15, 0.16, 0.155], 0.0, 0.1, FAILS),
        ([-0.05, -0.06, -0.055], 0.0, 0.1, FAILS),
        ([0.05, 0.15, 0.1], 0.0, 0.1, UNDECIDED),
        ([0.05], 0.0, 0.1, UNDECIDED),
        ([], 0.0, 0.1, UNDECIDED),
    ],
)
def test_a_part_holds_fails_or_is_undecided(values, low, high, verdict):
    assert verdict_of([ClaimPart("x", pd.Series(values, dtype=float), low, high)]) == verdict


def test_a_claim_needs_all_its_parts():
    yes, no, maybe = (ClaimPart("x", pd.Series(v), 0.0, 1.0) for v in ([0.5, 0.51], [2.0, 2.01], [0.9, 1.1]))
    assert verdict_of([yes, yes]) == HOLDS
    assert verdict_of([yes, maybe]) == UNDECIDED
    assert verdict_of([yes, maybe, no]) == FAILS
    assert verdict_of([]) == NOT_APPLICABLE


FINAL = {
    "32x1-minimalist": 0.45,
    "32x1+7-paper_text": 0.50,
    "32x8-paper_text": 0.58,
    "32x16-paper_text": 0.60,
    "32x32-paper_text": 0.61,
    "32x64-paper_text": 0.62,
    "128x8-paper_text": 0.61,
    "256x1-paper_text": 0.50,
    "1x256-paper_text": 0.48,
    "256x1w8-paper_text": 0.585,
    "2048x1w8-paper_text": 0.62,
}


def curves_of(values, base=0.02, seeds=4, spread=0.001, pair_name="qwen-gsm8k"):
    """Curves of every cell whose final test Pass@1 is as given (0.575 elsewhere), with small differences between
    seeds."""
    rows = []
    for seed in range(seeds):
        for i, cell in enumerate(label(c) for c in cells_of(list(EXPERIMENTS.values()))):
            final = values.get(cell, 0.575) + spread * np.sin(7 * seed + i)
            for step, test in ((0, base), (2000, final)):
                rows.append(
                    {
                        "pair": pair_name,
                        "cell": cell,
                        "seed": seed,
                        "round": step,
                        "train_pass_at_1": test * 1.2,
                        "test_pass_at_1": test,
                    }
                )
    return pd.DataFrame(rows).assign(planned_rounds=2000)


def verdicts(curves):
    return {f.claim: f.verdict for f in judge(curves, ["qwen-gsm8k"])}


def test_the_papers_world_reproduces_its_claims():
    found = verdicts(curves_of(FINAL))
    assert found.pop("9 stuck pairs") == NOT_APPLICABLE
    assert set(found.values()) == {HOLDS}


BROKEN = {
    "1 baseline": {"32x1-minimalist": 0.70},
    "2 advantage": {"32x1+7-paper_text": 0.40},
    "3 rollouts": {"32x8-paper_text": 0.52},
    "4 batch size": {"128x8-paper_text": 0.70},
    "5 trade-off": {"256x1-paper_text": 0.60},
    "5 fallback": {"256x1-paper_text": 0.60},
    "6a replay, text": {"32x1w8-paper_text": 0.50},
    "6b replay, code": {"128x2w8-paper_text": 0.50},
    "7 ceiling": {"2048x1w8-paper_text": 0.50},
}


@pytest.mark.parametrize("claim", BROKEN)
def test_a_claim_fails_in_a_world_where_it_is_false(claim):
    assert verdicts(curves_of(FINAL | BROKEN[claim]))[claim] == FAILS


def test_train_and_test_that_part_are_seen():
    curves = curves_of(FINAL)
    curves["train_pass_at_1"] = 1 - curves["test_pass_at_1"]
    assert verdicts(curves)["8 train and test"] == FAILS


def test_train_and_test_that_move_together_almost_perfectly_are_seen():
    curves = curves_of(FINAL, spread=0.02)
    noisy = (curves["round"] > 0) & (curves["seed"] == 0)
    curves.loc[noisy, "train_pass_at_1"] += np.random.default_rng(0).normal(0, 0.006, noisy.sum())
    found = next(f for f in judge(curves, ["qwen-gsm8k"]) if f.claim == "8 train and test")
    mean, low, high = map(float, re.findall(r"[+-]\d\.\d+", found.measured))
    assert 0.9 < low < 0.98 < mean < 1 < high
    assert found.verdict == HOLDS


def test_a_stuck_pair_that_something_moves_is_seen():
    still = dict.fromkeys(FINAL, 0.251) | {label(c): 0.251 for c in cells_of(list(EXPERIMENTS.values()))}
    assert verdicts(curves_of(still, base=0.25))["9 stuck pairs"] == HOLDS
    assert verdicts(curves_of(still | {"2048x1w8-paper_text": 0.30}, base=0.25))["9 stuck pairs"] == FAILS


def test_noise_and_single_seeds_decide_nothing():
    assert set(verdicts(curves_of(FINAL, seeds=1)).values()) <= {UNDECIDED, NOT_APPLICABLE}
    noisy = verdicts(curves_of(FINAL, spread=0.3))
    assert HOLDS not in {noisy[c.name] for c in CLAIMS if c.name[0] in "234567"}


def test_a_cell_without_a_finished_run_is_undecided():
    curves = curves_of(FINAL)
    curves = curves[~((curves["cell"] == "2048x1w8-paper_text") & (curves["round"] > 0))]
    found = {f.claim: f for f in judge(curves, ["qwen-gsm8k"])}
    assert found["7 ceiling"].verdict == UNDECIDED and "no finished run" in found["7 ceiling"].measured
    assert found["2 advantage"].verdict == HOLDS


def test_findings_show_the_published_difference():
    found = {f.claim: f.published for f in judge(curves_of(FINAL), ["qwen-gsm8k"])}
    assert found["1 baseline"] == "+0.45" and found["7 ceiling"] == "+0.05" and found["6a replay, text"] == ""


def test_endpoint_table_and_agreement():
    curves = curves_of(FINAL, spread=0.0)
    table = endpoint_table(curves, list(EXPERIMENTS.values()), ["qwen-gsm8k"])
    row = table[(table["experiment"] == "baseline") & (table["split"] == "test")].iloc[0]
    assert row["mean"] == pytest.approx(0.45) and row["published"] == 0.45 and row["difference"] == pytest.approx(0.0)
    known = agreement(table).set_index("split")
    assert known.loc["test", "cells"] == 9
    expected = [
        abs(
            finals(curves, "qwen-gsm8k", "test")[label(c)].mean()
            - published(PAIRS["qwen-gsm8k"].model, "gsm8k", "test", c)
        )
        for c in cells_of(list(EXPERIMENTS.values()))
        if published(PAIRS["qwen-gsm8k"].model, "gsm8k", "test", c) is not None
    ]
    assert known.loc["test", "mae"] == pytest.approx(np.mean([*expected, 0.02]))


SHORT = ("--rounds", "2", "--eval-every", "2")


@pytest.mark.parametrize(
    ("flags", "changed"),
    [
        ((), ""),
        (("--preset", "dapo", *SHORT), "nothing published"),
        (SHORT, "rounds"),
        (
            (*SHORT, "--environment.n-train", "200", "--optimizer.learning-rate", "1e-3"),
            "rounds, environment, optimizer",
        ),
        ((*SHORT, "--sampling.tries", "2", "--sampler.lag", "1"), "rounds, sampling, sampler"),
    ],
)
def test_published_numbers_stand_beside_runs_that_can_be_compared(flags, changed, tmp_path):
    written = StringIO()
    command = parse_run(
        [
            "cell",
            "--batch-size",
            "32",
            "--rollouts",
            "8",
            "--seeds",
            "1",
            "--quiet",
            "--results",
            str(tmp_path / "results"),
            *flags,
        ]
    )
    assert command.execute(Console(file=written, width=120)) == 0
    shown = written.getvalue()
    assert ("0.78" in shown) == (not changed)
    assert ("published" in shown.splitlines()[2]) == (not changed)
    assert (f"published numbers are left out: not the pair's own are {changed}\n" in shown) == (
        changed.startswith("rounds")
    )
