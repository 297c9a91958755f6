"""The league: every estimator that has a card, on the same problems, paired with GRPO and with the minimalist baseline.

Every entrant trains for the same rounds on batches of the same number of contexts; an entrant that needs no group takes
one rollout of each. "At equal rounds" compares the ends of these runs. "At equal rollouts" gives every entrant the
rollouts that GRPO spends: one that takes one rollout of each context runs on a batch that is larger by GRPO's number of
rollouts, and one that samples more (dynamic sampling, a greedy rollout) is read off where its rollouts are spent,
between two evaluations by a straight line.

Differences are paired by pair and seed; every pair has seeds of its own, so that its runs are independent of the other
pairs'. The mean over pairs has an interval from the spread over seeds within pairs, pooled, corrected for the number of
entrants (Bonferroni). It holds for these
pairs: pairs are not a sample.
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from rftlab.shared.cards import CARDS
from rftlab.shared.cards.card import Card
from rftlab.shared.design import Design
from rftlab.shared.estimator import Estimator
from rftlab.sim.config import Sampler, Simulation
from rftlab.studies.data.paper.experiments import label
from rftlab.studies.data.paper.pairs import linear_environment, start_at
from rftlab.studies.data.results.stats import pooled_interval
from rftlab.studies.data.runs.points import RunSpec
from rftlab.studies.estimators.league.rules import Rules

REFERENCES = ("grpo", "minimalist")
BUDGETS = ("rounds", "rollouts")
METRIC = "test_pass_at_1"


class Entrant(NamedTuple):
    """A card and its designs at equal rounds and at equal rollouts."""

    card: Card
    designs: dict[str, Design]


def entrants(rules: Rules, names: Sequence[str] | None = None) -> list[Entrant]:
    """Every card with an estimator, in the order of the cards; or those of some names, in their order."""
    cards = CARDS.values() if names is None else [CARDS[name] for name in names]
    return [Entrant(card, _designs(card, card.estimator, rules)) for card in cards if card.estimator]


def _designs(card: Card, estimator: Estimator, rules: Rules) -> dict[str, Design]:
    grouped = card.rollouts > 1
    sampling = replace(card.sampling, keep=min(card.sampling.keep, rules.rollouts // 2))
    design = Design(
        rules.batch_size,
        rules.rollouts if grouped else 1,
        replay_window=card.replay_window,
        estimator=estimator,
        sampling=sampling,
        rounds=rules.rounds,
        eval_every=next(rules.rounds // n for n in (20, 10, 5, 4, 2, 1) if rules.rounds % n == 0),
        minibatches=rules.minibatches,
    )
    return {
        "rounds": design,
        "rollouts": design if grouped else replace(design, batch_size=rules.batch_size * rules.rollouts),
    }


def pair_seeds(rules: Rules, place: int) -> range:
    """Seeds of the pair at that place."""
    return range(place * rules.seeds, (place + 1) * rules.seeds)


def _style(rules: Rules) -> dict[str, Any]:
    """What responses are like. Style tokens take the place of the Gaussian nuisance, whose variance surprise
    divides."""
    style = {"style_tokens": rules.style_tokens, "length_by_style": 0.5, "length_jitter": 0.3}
    return style | {"surprise": 0.0} if rules.style_tokens else style


def league_points(rules: Rules, names: Sequence[str] | None = None) -> list[RunSpec]:
    """Every run of the league, or of some entrants, once, although entrants may share it."""
    points, chosen = [], entrants(rules, names)
    for place, name in enumerate(rules.pairs):
        known = start_at(name, "sim")
        environment = replace(linear_environment(known), **_style(rules))
        for seed in pair_seeds(rules, place):
            for design in dict.fromkeys(design for entrant in chosen for design in entrant.designs.values()):
                sampler = Sampler(noise=rules.noise)
                points.append(RunSpec(name, Simulation(environment, design, known.optimizer, sampler, seed=seed)))
    return points


def scores(rules: Rules, curves: pd.DataFrame, names: Sequence[str] | None = None) -> pd.DataFrame:
    """Test Pass@1 of every entrant, or of some: columns entrant, budget, pair, seed, value; nan where one diverged."""
    budget = rules.rounds * rules.batch_size * rules.rollouts
    runs = dict(iter(curves.groupby(["pair", "cell", "seed"])))
    rows = []
    for entrant in entrants(rules, names):
        for name, design in entrant.designs.items():
            for place, of in enumerate(rules.pairs):
                for seed in pair_seeds(rules, place):
                    run = runs[of, label(design), seed]
                    value = _value(run, rules.rounds, budget if name == "rollouts" else None)
                    rows.append((entrant.card.name, name, of, seed, value))
    return pd.DataFrame(rows, columns=["entrant", "budget", "pair", "seed", "value"])


def _value(run: pd.DataFrame, rounds: int, budget: int | None) -> float:
    """Pass@1 of a run at its end, or where `budget` rollouts are spent."""
    if run["round"].iloc[-1] < rounds:
        return np.nan
    return float(run[METRIC].iloc[-1] if budget is None else np.interp(budget, run["rollouts"], run[METRIC]))


def league_table(scored: pd.DataFrame) -> pd.DataFrame:
    """One row per budget and entrant: value, and its difference to each reference with corrected interval; best first.

    Columns budget, entrant, family, value, then for each reference R: vs_R, vs_R_low, vs_R_high (nan for R itself), and
    diverged (runs).
    """
    rows = []
    for budget in BUDGETS:
        wide = scored[scored["budget"] == budget].pivot(index=["pair", "seed"], columns="entrant", values="value")
        for name in wide.columns:
            value = wide[name].mean(skipna=False)
            row = {"budget": budget, "entrant": name, "family": CARDS[name].family, "value": value}
            for reference in REFERENCES:
                row |= _difference(wide, name, reference)
            rows.append(row | {"diverged": int(wide[name].isna().sum())})
    return pd.DataFrame(rows).sort_values(
        ["budget", "value"], ascending=[True, False], kind="stable", ignore_index=True
    )


def _difference(wide: pd.DataFrame, name: str, reference: str) -> dict[str, float]:
    keys = [f"vs_{reference}{suffix}" for suffix in ("", "_low", "_high")]
    differences = wide[name] - wide[reference]
    if name == reference or differences.isna().any():
        return dict.fromkeys(keys, np.nan)
    groups = [part.to_numpy() for _, part in differences.groupby("pair")]
    return dict(zip(keys, pooled_interval(groups, len(wide.columns) - 1), strict=True))


def league_verdict(row, reference: str) -> str:
    """better, worse or level with a reference by the corrected interval; "same" where every difference is exactly 0."""
    middle, low, high = (getattr(row, f"vs_{reference}{suffix}") for suffix in ("", "_low", "_high"))
    if np.isnan(middle):
        return ""
    if low == high == 0:
        return "same"
    return "better" if low > 0 else "worse" if high < 0 else "level"


def league_findings(ranked: pd.DataFrame) -> list[str]:
    """What the table says, in sentences: one paragraph per budget."""
    return [_paragraph(ranked[ranked["budget"] == budget], budget) for budget in BUDGETS]


def _paragraph(part: pd.DataFrame, budget: str) -> str:
    sentences = []
    for reference in REFERENCES:
        by = {
            kind: [row for row in part.itertuples() if league_verdict(row, reference) == kind]
            for kind in ("better", "worse", "level", "same")
        }
        sentences.append(
            f"Of {len(part) - 1} other entrants {_named(by['better'], reference)} better than {reference}, "
            f"{_named(by['worse'], reference)} worse, "
            f"{len(by['level'])} cannot be told from it and {len(by['same'])} "
            f"{'is' if len(by['same']) == 1 else 'are'} the same here."
        )
    best = part.iloc[0]
    spread = part["value"].max() - part["value"].min()
    diverged = [row.entrant for row in part.itertuples() if row.diverged]
    sentences.append(
        f"The highest mean test Pass@1 is {best['value']:.3f} ({best['entrant']}), the spread from first to "
        f"last {spread:.3f}."
    )
    if diverged:
        sentences.append(f"Runs diverged for {', '.join(diverged)}.")
    return f"At equal {budget}: " + " ".join(sentences)


def _named(rows: list, reference: str) -> str:
    """How many, and the three furthest away by name."""
    if not rows:
        return "none is"
    rows = sorted(rows, key=lambda row: -abs(getattr(row, f"vs_{reference}")))
    names = ", ".join(f"{row.entrant} {getattr(row, f'vs_{reference}'):+.3f}" for row in rows[:3])
    return f"{len(rows)} {'is' if len(rows) == 1 else 'are'} ({names}{', ...' if len(rows) > 3 else ''})"
