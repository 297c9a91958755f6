"""Cards on the terminal: what an estimator computes, in symbols and numbers, and where it comes from."""

import math

from rich.console import Console
from rich.table import Table

from shared.errors import check_choice
from shared.estimator import Estimator
from studies.cards import CARDS

_BASELINE = {
    "none": "r",
    "group_mean": "r - mean",
    "leave_one_out": "r - mean of the others",
    "batch_mean": "r - mean of the batch",
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
    rows = [("advantage", "A = " + (f"({_BASELINE[a.baseline]}) / (std + {a.eps:g})" if a.scale == "group_std" else _BASELINE[a.baseline]))]
    if a.scale == "group_std":
        rows.append(("std", f"ddof {a.ddof} ({'sample' if a.ddof else 'population'}), eps {a.eps:g}"))
    if a.of_group:
        rows.append(("group of one", _SINGLETON[a.singleton]))
    kind = type(s).__name__
    clip = "" if kind == "Reinforce" else f"min(A ratio, A clip(ratio, {1 - s.low:g}, {1 + s.high:g}))"
    rows.append(("surrogate", "A log pi" if kind == "Reinforce" else clip + (f"; at least {s.dual:g} A where A < 0" if math.isfinite(s.dual) else "")))
    rows.append(("KL penalty", "none" if kl.kind == "none" else f"{kl.kind} = {_KL[kl.kind]}, d = logp - ref_logp; coefficient {kl.coef:g}, in the {kl.place}"))
    rows.append(("aggregation", _AGGREGATION[g.kind] + (f", divided by {g.length:g}" if g.length else "")))
    return rows


def show(console: Console, name: str | None) -> None:
    """Print one card, or all. Raises UserError for an unknown name."""
    if name:
        check_choice("estimator", name, tuple(CARDS))
    for card in [CARDS[name]] if name else CARDS.values():
        table = Table(title=f"{card.name}: {card.title}", title_justify="left", show_header=False, box=None, padding=(0, 2, 0, 2))
        for label, text in [*rows_of(card.estimator), ("source", card.source), ("note", card.note)]:
            table.add_row(f"[bold]{label}", text)
        console.print(table, "")
