"""Estimator cards: what a preset computes, in symbols and numbers, and where it comes from."""

from dataclasses import dataclass

from rich.console import Console
from rich.table import Table

from shared.estimator import Estimator
from shared.presets import PRESETS, preset


@dataclass(frozen=True)
class Card:
    """The part of a card that no field of the estimator says."""

    title: str
    source: str
    note: str


CARDS: dict[str, Card] = {
    "minimalist": Card("Minimalist baseline", "arXiv 2601.22532", "One rollout per query, raw 0/1 reward: wrong answers contribute nothing."),
    "grpo": Card("GRPO", "arXiv 2402.03300, eq. 3", "Constants as in verl: sample deviation, eps 1e-6; a group of one keeps its raw reward."),
    "dr_grpo": Card("Dr. GRPO", "arXiv 2503.20783", "No division by the deviation, none by the response's own length."),
    "rloo": Card(
        "RLOO", "arXiv 2402.14740", "Unbiased: each reward against the mean of the others. The paper also puts a KL penalty in the reward (kl.place)."
    ),
    "paper_text": Card("The paper's GRPO, as its text says", "arXiv 2601.22532", "Token sums, no dual clip."),
    "paper_code": Card("The paper's GRPO, as its scripts run it", "arXiv 2601.22532, on verl", "verl's defaults: token mean over the batch, dual clip 3."),
}

_ADVANTAGE = {
    "reward": "A = r",
    "group_mean": "A = r - mean",
    "group_zscore": "A = (r - mean) / (std + {eps:g})",
    "leave_one_out": "A = r - mean of the others",
    "batch_mean": "A = r - mean of the batch",
}
_SINGLETON = {"raw": "keeps its raw reward (mean 0, std 1)", "zero": "gives 0", "error": "is refused"}
_AGGREGATION = {
    "token_mean": "mean over the batch's tokens",
    "token_sum": "sum over the batch's tokens",
    "seq_mean_token_sum": "mean over responses of their token sums",
    "seq_mean_token_mean": "mean over responses of their token means",
}
_KL = {"k1": "d", "k2": "d^2/2", "k3": "exp(-d) + d - 1", "abs": "|d|"}


def rows_of(estimator: Estimator) -> list[tuple[str, str]]:
    """The lines of a card that follow from the estimator's fields."""
    a, s, kl, g = estimator.advantage, estimator.surrogate, estimator.kl, estimator.aggregation
    rows = [("advantage", _ADVANTAGE[a.kind].format(eps=a.eps))]
    if a.kind == "group_zscore":
        rows.append(("std", f"ddof {a.ddof} ({'sample' if a.ddof else 'population'}), eps {a.eps:g}"))
    if a.kind not in ("reward", "batch_mean"):
        rows.append(("group of one", _SINGLETON[a.singleton]))
    clip = f"min(A ratio, A clip(ratio, {1 - s.low:g}, {1 + s.high:g}))"
    rows.append(("surrogate", "A log pi" if s.kind == "reinforce" else clip + (f"; at least {s.dual:g} A where A < 0" if s.dual else "")))
    rows.append(("KL penalty", "none" if kl.kind == "none" else f"{kl.kind} = {_KL[kl.kind]}, d = logp - ref_logp; coefficient {kl.coef:g}, in the {kl.place}"))
    rows.append(("aggregation", _AGGREGATION[g.kind] + (f", divided by {g.length:g}" if g.length else "")))
    return rows


def show(console: Console, name: str | None) -> None:
    """Print one card, or all. Raises UserError for an unknown name."""
    for key in [name] if name else list(PRESETS):
        estimator, card = preset(key), CARDS[key]
        table = Table(title=f"{key}: {card.title}", title_justify="left", show_header=False, box=None, padding=(0, 2, 0, 2))
        for label, text in [*rows_of(estimator), ("source", card.source), ("note", card.note)]:
            table.add_row(f"[bold]{label}", text)
        console.print(table, "")
