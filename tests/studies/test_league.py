"""The league: who takes part, what is equal, and what its intervals and sentences say."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from rich.console import Console

from rftlab.shared.cards import CARDS
from rftlab.shared.plumbing.errors import UserError
from rftlab.studies.cli.simulate import League, parse_run
from rftlab.studies.data.results.stats import interval, pooled_interval
from rftlab.studies.estimators.league.league import (
    entrants,
    league_findings,
    league_points,
    league_table,
    league_verdict,
    scores,
)
from rftlab.studies.estimators.league.rules import Rules
from rftlab.studies.estimators.league.run import run_league

SMALL = Rules(pairs=("qwen-gsm8k",), seeds=2, rounds=10)


def ranked_of(values: dict[str, np.ndarray]) -> pd.DataFrame:
    """The league's table for given values (pairs, seeds) of each entrant, the same in both budgets."""
    rows = [
        (name, budget, f"pair{p}", 100 * p + s, value)
        for name, grid in values.items()
        for budget in ("rounds", "rollouts")
        for p, row in enumerate(grid)
        for s, value in enumerate(row)
    ]
    return league_table(pd.DataFrame(rows, columns=["entrant", "budget", "pair", "seed", "value"]))


def row_of(ranked: pd.DataFrame, name: str, budget: str = "rollouts"):
    return next(ranked[(ranked["entrant"] == name) & (ranked["budget"] == budget)].itertuples())


def test_every_card_with_an_estimator_takes_part():
    assert [entrant.card.name for entrant in entrants(SMALL)] == [
        name for name, card in CARDS.items() if card.estimator is not None
    ]


@pytest.mark.parametrize(
    "arguments",
    ["league --seeds 3 --quiet", "--seeds 3 --quiet league", "--seeds=3 league --quiet", "--quiet --seeds 3 league"],
)
def test_the_word_may_stand_anywhere(arguments):
    found = parse_run(arguments.split())
    assert isinstance(found, League) and found.rules.seeds == 3 and found.quiet


def test_a_folder_of_that_name_is_not_the_word():
    assert (parse_run(["cell", "--results", "league"]).study, parse_run(["--results", "league"]).results) == (
        "cell",
        Path("league"),
    )


def test_budgets_are_equal():
    for entrant in entrants(SMALL):
        by_rounds, by_rollouts = entrant.designs["rounds"], entrant.designs["rollouts"]
        assert by_rounds.batch_size == SMALL.batch_size and by_rounds.rounds == by_rollouts.rounds == SMALL.rounds
        assert by_rollouts.batch_size * by_rollouts.rollouts == SMALL.batch_size * SMALL.rollouts
        assert by_rounds.estimator == by_rollouts.estimator == entrant.card.estimator


def test_pairs_have_seeds_of_their_own():
    points = league_points(replace(SMALL, pairs=("qwen-gsm8k", "olmo-math"), seeds=3))
    seeds = {name: {point.run.seed for point in points if point.pair == name} for name in ("qwen-gsm8k", "olmo-math")}
    assert seeds == {"qwen-gsm8k": {0, 1, 2}, "olmo-math": {3, 4, 5}}
    assert len(points) == len(set(points))


def curves_of(pass_at_1, rollouts, budget_rules: Rules) -> pd.DataFrame:
    """Curves of every run with the same columns."""
    from rftlab.studies.data.paper.experiments import label

    frames = []
    for entrant in entrants(budget_rules):
        for design in entrant.designs.values():
            for seed in range(budget_rules.seeds):
                columns = {
                    "round": np.linspace(0, budget_rules.rounds, len(rollouts)).astype(int),
                    "rollouts": rollouts,
                    "test_pass_at_1": pass_at_1,
                }
                frames.append(pd.DataFrame({"pair": "qwen-gsm8k", "cell": label(design), "seed": seed, **columns}))
    return pd.concat(frames)


def test_a_run_that_samples_more_is_read_off_where_its_rollouts_are_spent():
    budget = SMALL.rounds * SMALL.batch_size * SMALL.rollouts
    scored = scores(SMALL, curves_of([0.0, 0.4, 0.8], [0, budget, 2 * budget], SMALL))
    at = scored.groupby("budget")["value"].unique()
    assert at["rollouts"] == [0.4] and at["rounds"] == [0.8]


def test_a_diverged_run_has_no_value():
    curves = curves_of([0.0, 0.4], [0, 100], SMALL)
    assert scores(SMALL, curves[curves["round"] == 0])["value"].isna().all()


def test_differences_and_verdicts():
    rng = np.random.default_rng(0)
    grpo = 0.5 + 0.2 * np.arange(3)[:, None] + 0.05 * rng.standard_normal((3, 6))
    noise = 0.001 * rng.standard_normal((3, 6))
    ranked = ranked_of(
        {
            "grpo": grpo,
            "minimalist": grpo - 0.1 + noise,
            "rloo": grpo + 0.02 + noise,
            "opo": grpo + noise - noise.mean(),
            "gspo": grpo,
        }
    )
    row = row_of(ranked, "rloo")
    assert row.vs_grpo == pytest.approx((0.02 + noise).mean()) and row.vs_grpo_low < row.vs_grpo < row.vs_grpo_high
    verdicts = {
        name: league_verdict(row_of(ranked, name), "grpo") for name in ("grpo", "minimalist", "rloo", "opo", "gspo")
    }
    assert verdicts == {"grpo": "", "minimalist": "worse", "rloo": "better", "opo": "level", "gspo": "same"}
    assert league_verdict(row_of(ranked, "grpo"), "minimalist") == "better"
    assert list(ranked[ranked["budget"] == "rollouts"]["value"]) == sorted(
        ranked[ranked["budget"] == "rollouts"]["value"], reverse=True
    )


def test_findings_count_what_the_table_says():
    grpo = np.full((2, 3), 0.5)
    wobble = np.array([[0.001, -0.001, 0.0], [0.0, 0.001, -0.001]])
    ranked = ranked_of(
        {
            "grpo": grpo,
            "minimalist": grpo - 0.2 + wobble,
            "rloo": grpo + 0.1 + wobble,
            "gspo": grpo + wobble,
            "opo": np.full((2, 3), np.nan),
        }
    )
    text = league_findings(ranked)[1]
    assert "1 is (rloo +0.100) better than grpo" in text and "1 is (minimalist -0.200) worse" in text
    assert "1 cannot be told from it" in text and "Runs diverged for opo" in text and "0.600 (rloo)" in text


def test_pooled_intervals():
    one = np.array([0.1, 0.2, 0.4])
    assert pooled_interval([one], 1) == pytest.approx(interval(one))
    narrow, wide = pooled_interval([one, one + 5], 1), pooled_interval([one, one + 5], 50)
    assert narrow.value == wide.value == pytest.approx(one.mean() + 2.5) and wide.high > narrow.high > narrow.value
    rng = np.random.default_rng(1)
    covered = [abs(pooled_interval([rng.normal(m, 1, 4) for m in (0, 3)], 10).value - 1.5) for _ in range(10)]
    assert max(covered) < 3


def test_pooled_intervals_hold_together():
    """Ten intervals of independent samples all hold in about 95% of trials."""
    rng = np.random.default_rng(2)
    held = 0
    for _ in range(400):
        bounds = [pooled_interval([rng.normal(m, 1, 4) for m in (0, 3)], 10) for _ in range(10)]
        held += all(b.low <= 1.5 <= b.high for b in bounds)
    assert 0.92 <= held / 400 <= 0.98


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"pairs": ()}, "pairs"),
        ({"pairs": ("qwen-gsm8k",) * 2}, "pairs"),
        ({"seeds": 1}, "seeds = 1; allowed: 2 or more"),
        ({"rollouts": 1}, "rollouts = 1"),
    ],
)
def test_bad_rules_are_refused(change, message):
    with pytest.raises(UserError, match=message):
        Rules(**change)


def test_a_small_league_runs(tmp_path):
    console = Console(width=100, record=True)
    folder = run_league(console, SMALL, tmp_path, 1, True)
    assert {path.name for path in folder.iterdir()} == {
        "league.png",
        "league.svg",
        "league.csv",
        "scores.csv",
        "findings.txt",
    }
    ranked, scored = pd.read_csv(folder / "league.csv"), pd.read_csv(folder / "scores.csv")
    assert set(ranked["entrant"]) == {entrant.card.name for entrant in entrants(SMALL)} and len(ranked) == 2 * len(
        entrants(SMALL)
    )
    assert scored["value"].between(0, 1).all() and "At equal rollouts:" in console.export_text()
