"""Recommend a design for each pair of a study, and say how far to trust it.

The choice is the cheapest design, by rollouts a round, that is surely no worse than the best one by more than `SAME`:
the 95% t interval of the paired difference lies below it. The best of many designs is overestimated, because the
numbers that pick it are also its measurement; so the reported gain is that of the choice. A design with missing runs,
such as diverged ones, is not compared, because its other runs would overestimate it. Trust is low, fair or good, with
reasons. Chance picks the best of equal designs, so trust is low where others that cost no more may be as good.
"""

from collections import Counter
from typing import Literal, NamedTuple

import numpy as np
import pandas as pd

from rftlab.shared.design import Design
from rftlab.studies.data.paper.experiments import BASELINE
from rftlab.studies.data.paper.pairs import Level
from rftlab.studies.data.results.claims import SAME, STILL
from rftlab.studies.data.results.endpoints import agreement, finals
from rftlab.studies.data.results.stats import Estimate, interval
from rftlab.studies.report.figures import pretty

Trust = Literal["low", "fair", "good"]
FEW_SEEDS = 3
"""Number of seeds below which intervals say little."""
WIDE = 0.05
"""Mean absolute error against published test Pass@1 above which a simulated pair is not trusted."""
SPLITS_OF = 3
"""Number of designs of equal cost from which the best split of that cost is reported."""


class Advice(NamedTuple):
    """Recommendation for one pair."""

    pair: str
    title: str
    """Name of the pair for readers."""
    level: str
    design: str
    """Recommended design in words; "" where nothing moves the pair."""
    per_round: int
    """Number of rollouts of a round of the recommended design."""
    value: Estimate
    """Test Pass@1 of the recommended design after training."""
    gain: Estimate
    """Gain of the recommended design over the base model, seed by seed."""
    best: str
    best_value: Estimate
    tried: int
    equal: str
    """Best split of the most common cost; "" where too few designs share one."""
    equal_cost: int
    trust: Trust
    reasons: tuple[str, ...]


def advise_pairs(
    curves: pd.DataFrame, endpoints: pd.DataFrame, level: Level, designs: dict[str, Design]
) -> list[Advice]:
    """Return the advice for every pair with a finished design. designs: by their labels. curves, endpoints: as in
    studies/report/report.py."""
    advice = []
    for name in curves["pair"].unique():
        table = finals(curves, name, "test")
        runs = table[[cell for cell in table.columns if cell in designs]].count()
        if seeds := int(max(runs, default=0)):
            known = list(runs.index[runs == seeds])
            advice.append(_advice(name, level, table, known, designs, _trust(name, curves, endpoints, level, seeds)))
    return advice


def _advice(
    name: str,
    level: Level,
    table: pd.DataFrame,
    known: list[str],
    designs: dict[str, Design],
    trust: tuple[Trust, tuple[str, ...]],
) -> Advice:
    means = table[known].mean()
    best = str(means.idxmax())
    close = [cell for cell in known if cell == best or _less(table, best, cell).high <= SAME]
    chosen = min(close, key=lambda cell: (designs[cell].round_rollouts, -means[cell]))
    others = [c for c in known if c not in close and designs[c].round_rollouts <= designs[chosen].round_rollouts]
    rivals = sum(_less(table, best, cell).low <= 0 for cell in others)
    cost, many = Counter(designs[cell].round_rollouts for cell in known).most_common(1)[0]
    equal = max((cell for cell in known if designs[cell].round_rollouts == cost), key=means.get)
    return Advice(
        name,
        pretty(name),
        level,
        in_words(designs[chosen]) if _less(table, best, "base").high >= STILL else "",
        designs[chosen].round_rollouts,
        interval(table[chosen].dropna().to_numpy()),
        _less(table, chosen, "base"),
        in_words(designs[best]),
        interval(table[best].dropna().to_numpy()),
        len(known),
        in_words(designs[equal]) if many >= SPLITS_OF else "",
        cost,
        *doubted(*trust, rivals),
    )


def doubted(trust: Trust, reasons: tuple[str, ...], rivals: int) -> tuple[Trust, tuple[str, ...]]:
    """Return the trust in a choice that has `rivals`: designs that cost no more and do not differ significantly from
    the best."""
    if not rivals:
        return trust, reasons
    return "low", (
        *reasons,
        f"{rivals} design{'s' * (rivals > 1)} that cost no more may be as good: too few runs to tell",
    )


def _less(table: pd.DataFrame, first: str, second: str) -> Estimate:
    """Return the interval of the first design's values minus the second's, seed by seed."""
    return interval((table[first] - table[second]).dropna().to_numpy())


def in_words(design: Design) -> str:
    """Return a design in words: 32 contexts x 8 rollouts, replay window 8."""
    parts = [f"{design.batch_size} contexts x {design.rollouts} rollout{'s' * (design.rollouts > 1)}"]
    if design.support_rollouts:
        parts.append(f"{design.support_rollouts} more for the baseline")
    if design.replay_window:
        parts.append(f"replay window {design.replay_window}")
    if design.estimator.advantage.baseline == "none":
        parts.append("raw reward")
    return ", ".join(parts)


def _trust(
    name: str, curves: pd.DataFrame, endpoints: pd.DataFrame, level: Level, seeds: int
) -> tuple[Trust, tuple[str, ...]]:
    """Return the trust in a pair's runs, with reasons: `low` with too few seeds, other rounds than those compared with
    the paper, or a simulation that is far from published numbers or was not compared with any; `fair` for other
    simulations; `good` for runs of the model itself."""
    few = seeds < FEW_SEEDS
    reasons = [f"{seeds} seed{'s' * (seeds > 1)}{', too few' * few}"]
    if level == "llm":
        return "low" if few else "good", (*reasons, "runs of this model on this task; another may differ")
    rounds = int(curves.loc[curves["pair"] == name, "planned_rounds"].max())
    known = agreement(endpoints[endpoints["pair"] == name]) if len(endpoints) else endpoints
    test = known[known["split"] == "test"] if len(known) else known
    error = float(test["mae"].iloc[0]) if len(test) else float("nan")
    if rounds != BASELINE.rounds:
        reasons.append(f"simulated, for {rounds} rounds; compared with the paper are {BASELINE.rounds}")
        return "low", tuple(reasons)
    if not np.isfinite(error):
        return "low", (*reasons, "simulated, with no published number to compare")
    reasons.append(f"simulated, {error:.3f} from published test Pass@1 on average, to which it was fitted")
    return "low" if few or error > WIDE else "fair", tuple(reasons)
