"""Show the cards of estimators in the terminal: one table of all, or one card with its source and every setting that
differs from the default."""

import inspect
import math
from dataclasses import fields

from rich.console import Console
from rich.text import Text

from rftlab.shared.cards import CARDS, find_name
from rftlab.shared.cards.card import Card, EstimatorKnob, all_knobs
from rftlab.shared.cards.libraries import AGG_MODES
from rftlab.shared.config.advantage import Advantage, CustomAdvantage
from rftlab.shared.config.aggregation import Aggregation
from rftlab.shared.config.kl import KL
from rftlab.shared.config.ratio import Ratio
from rftlab.shared.config.sampling import Sampling
from rftlab.shared.estimator import Estimator
from rftlab.shared.plumbing.errors import check_choice
from rftlab.studies.console.table import Column, Table

_CREDIT = {"reward": "r", "set_mean": "mean", "pass_at_k": "part in pass@k"}
_BASELINE = {
    "none": "",
    "group_mean": " - mean",
    "leave_one_out": " - mean of the others",
    "james_stein": " - shrunk mean of the others",
    "batch_mean": " - mean of the batch",
    "length_weighted": " - length-weighted mean",
    "greedy": " - r(greedy)",
    "moving_average": " - moving average",
    "value": " - V",
    "optimal": " - b*",
    "optimal_token": " - b* of the group at each token",
}
_SINGLETON = {"raw": "keeps its raw reward (mean 0, std 1)", "zero": "gives 0", "error": "is refused"}
_AGGREGATION = {
    "token_mean": "mean over the batch's tokens",
    "token_sum": "sum over the batch's tokens",
    "seq_mean_token_sum": "mean over responses of their token sums",
    "seq_mean_token_mean": "mean over responses of their token means",
    "prompt_mean": "mean over prompts of the mean over their tokens",
    "micro_batch_token_mean": "mean over micro-batches of their token means",
}
COLUMNS = {"name": 0, "advantage": 0, "surrogate, penalties": 0, "aggregation": 110, "title": 140, "source": 140}
"""Columns of the table of all cards, with the least width of a terminal at which each is shown."""
_KL = {"k1": "d", "k2": "d^2/2", "k3": "exp(-d) + d - 1", "abs": "|d|"}


def _written(value) -> str:
    return f"{value:g}" if isinstance(value, float) else str(value)


def _values(part) -> str:
    """Return the fields of a dataclass with their values as text."""
    return ", ".join(f"{field.name} {_written(getattr(part, field.name))}" for field in fields(part))


def _numbers(part) -> str:
    """Return a part of an estimator in a few words: its name and the values of its fields, without those that are inf
    (off)."""
    values = [getattr(part, field.name) for field in fields(part)]
    return " ".join([type(part).__name__, *(_written(value) for value in values if value != math.inf)])


def advantage_text(a: Advantage) -> str:
    """Return the advantage A as a formula."""
    if isinstance(a, CustomAdvantage):
        text = f"{a.name}(rewards, pool)"
        return text + (f", then scale {a.scale}" if a.scale != "none" else "")
    baselines = _BASELINE | {"constant": f" - {a.constant:.3g}"}
    text = _CREDIT.get(a.credit, a.credit) + baselines.get(a.baseline, f" - {a.baseline}")
    if a.baseline == "second_best":
        text = "best - second best"
    elif a.credit == "pass_at_k" and a.baseline == "leave_one_out":
        text = "part in pass@k - pass@(k-1) of the others"
    scaled = {
        "group_std": f"({text}) / (std + {a.eps:g})",
        "others_std": f"({text}) / (std of the others + {a.eps:g})",
        "group_mean": f"({text}) / (mean + {a.eps:g})",
        "batch_std": f"({text}) / (batch std + {a.eps:g})",
        "nonzero": f"({text}) R / #(r ≠ 0)",
    }
    text = scaled.get(a.scale, text)
    text = f"Σ w {text} over rewards" if a.combine == "advantages" else text
    return text + (f", whitened by {a.whiten}" if a.whiten != "none" else "")


def aggregation_text(g: Aggregation) -> str:
    """Return an aggregation in a few words."""
    extras = (f", counts + {g.eps:g}" if g.eps else "") + (", empty responses count" if g.empty == "count" else "")
    size = f" of {g.micro_batch}" if g.micro_batch else ""
    return g.kind + size + (f" / {g.length:g}" if g.length else "") + extras


def _outside_knobs(card: Card) -> list[EstimatorKnob]:
    """Return the settings of a card that are not fields of its estimator."""
    return [knob for knob in all_knobs(card) if not knob.path.startswith("estimator")]


def surrogate_text(card: Card) -> str:
    """Return surrogate, ratio, mask, penalties and sampling of a card in a few words."""
    e = card.estimator
    if e is None:
        return ""
    parts = [_numbers(e.surrogate)]
    parts += [f"{e.ratio.level} ratio"] * (e.ratio.level != "token")
    parts += [_numbers(e.mask)] * (type(e.mask).__name__ != "Unmasked")
    parts += [f"{e.kl.kind} {e.kl.coef:g} in the {e.kl.place}"] * (e.kl.kind != "none")
    parts += [f"{e.correction.kind} by {e.correction.level}"] * (e.correction.kind != "none")
    parts += [f"{knob.path.split('.')[-1].replace('_', ' ')} {knob.value}" for knob in _outside_knobs(card)]
    return "; ".join(parts)


def _first_paragraph(part) -> str:
    return " ".join((inspect.getdoc(type(part)) or "").partition("\n\n")[0].split())


def _kl_text(kl: KL) -> str:
    if kl.kind == "none":
        return "none"
    said = [f"coefficient {kl.coef:g}", f"in the {kl.place}"]
    said += ["straight through"] * kl.straight_through + ["times the ratio"] * kl.weighted
    said += ["not bounded"] * (not kl.bounded)
    anchor = "ref_logp" if kl.anchor == "base" else "old_logp"
    return f"{kl.kind} = {_KL.get(kl.kind, kl.kind)}, d = logp - {anchor}; {', '.join(said)}"


def estimator_rows(estimator: Estimator) -> list[tuple[str, str]]:
    """Return the lines of a card that follow from the estimator's fields."""
    a, s, kl, g = estimator.advantage, estimator.surrogate, estimator.kl, estimator.aggregation
    rows = [("advantage", "A = " + advantage_text(a) + (f", k = {a.k}" if a.credit == "pass_at_k" else ""))]
    if a.scale in ("group_std", "others_std", "batch_std") or a.whiten == "responses":
        rows.append(("deviation", f"ddof {a.ddof} ({'sample' if a.ddof else 'population'}), eps {a.eps:g}"))
    elif a.whiten == "tokens":
        rows.append(("deviation", "sample, over tokens; eps 1e-08 inside the root"))
    if a.of_group:
        rows.append(("group of one", _SINGLETON[a.singleton]))
    rows.append(("surrogate", _first_paragraph(s) + (f" Here {_values(s)}." if fields(s) else "")))
    dual = getattr(s, "dual", math.inf)
    if math.isfinite(dual):
        rows.append(("dual clip", f"at least {dual:g} A where A < 0"))
    if estimator.ratio != Ratio():
        rows.append(("ratio", _values(estimator.ratio)))
    if type(estimator.mask).__name__ != "Unmasked":
        rows.append(("mask", f"{_first_paragraph(estimator.mask)} Here {_values(estimator.mask)}."))
    rows.append(("KL penalty", _kl_text(kl)))
    rows.append(("aggregation", f"{_AGGREGATION.get(g.kind, g.kind)}: {aggregation_text(g)}"))
    if estimator.correction.kind != "none":
        rows.append(("correction", _values(estimator.correction)))
    if estimator.length.coef > 0:
        rows.append(("length penalty", _values(estimator.length)))
    if estimator.has_bonus:
        moves = f", moved by {estimator.entropy_step:g} an update towards {estimator.entropy_target:g} nats a token"
        text = f"coefficient {estimator.entropy:g}" + moves * (estimator.entropy_target > 0)
        rows.append(("entropy bonus", text))
    return rows


def run_command(card: Card) -> str:
    """Return the command that runs a card in the simulator."""
    words = ["rftlab run cell", f"--preset {card.name}"] + [f"--rollouts {card.rollouts}"] * (card.rollouts > 1)
    return " ".join(words + [f"--{knob.path.replace('_', '-')} {knob.value}" for knob in _outside_knobs(card)])


def _story(card: Card) -> list[tuple[str, str]]:
    """Return every line of a card that has a text."""
    e, knobs = card.estimator, "\n".join(f"{k.path} {k.value} (default {k.default})" for k in all_knobs(card))
    rows = [
        ("formula", card.formula),
        *(estimator_rows(e) if e else [("estimator", "none: this method cannot exist here")]),
        ("sampling", _values(card.sampling) if card.sampling != Sampling() else ""),
        ("replay window", f"{card.replay_window} rewards per context" if card.replay_window else ""),
        ("bias, variance", card.bias),
        ("checks", f"rftlab theory {' '.join(card.checks)}" if card.checks else ""),
        ("convention of", card.mirrors),
        ("alias", f"{card.alias}, wherever a response has one advantage" if card.alias else ""),
        ("source", card.source),
        ("note", card.note),
        ("knobs", knobs),
        ("run", run_command(card) if e else ""),
    ]
    return [(label, text) for label, text in rows if text]


def _show_one(console: Console, card: Card) -> None:
    columns = (Column("", style="bold"), Column("", align="left"))
    table = Table(*columns, title=f"{card.name}: {card.title}", show_header=False, padding=(0, 2, 0, 2))
    for label, text in _story(card):
        table.add(label, text)
    console.print(table)


def _cards_table(columns: list[str], show_header: bool) -> Table:
    """Return a table of cards without rows; its columns have the same width in every family's table."""
    known = (Column(name, width=max(map(len, CARDS)) if name == "name" else None) for name in columns)
    return Table(*known, align="left", expand=True, pad_edge=False, show_header=show_header)


def _show_all(console: Console) -> None:
    columns = [column for column, least in COLUMNS.items() if console.width >= least]
    console.print(_cards_table(columns, show_header=True))
    for family in dict.fromkeys(card.family for card in CARDS.values()):
        table = _cards_table(columns, show_header=False)
        for cells in (_cells(card) for card in CARDS.values() if card.family == family):
            table.add(*(cells[column] for column in columns))
        console.print("", Text(family, style="bold italic"), sep="\n")
        console.print(table)
    console.print("", Text("agg_mode in versions of verl", style="italic"), sep="\n")
    table = Table("", "", "", align="left", pad_edge=False, show_header=False)
    for version, modes in AGG_MODES.items():
        for i, (mode, kind) in enumerate(modes.items()):
            table.add("" if i else version, mode, aggregation_text(kind))
    console.print(table, "")
    wider = ", ".join(column for column in COLUMNS if column not in columns)
    console.print(f"One card: rftlab estimators NAME{'; ' * bool(wider)}{wider}{': wider terminals' * bool(wider)}")


def _cells(card: Card) -> dict[str, str]:
    """Return the cells of a card's row in the table of all cards."""
    e = card.estimator
    return {
        "name": card.name,
        "title": card.title,
        "advantage": advantage_text(e.advantage) if e else "",
        "surrogate, penalties": surrogate_text(card) if e else "cannot exist here",
        "aggregation": aggregation_text(e.aggregation) if e else "",
        "source": card.source,
    }


def show_cards(console: Console, name: str | None) -> None:
    """Print one card, or a table of all. Raises UserError for an unknown name."""
    if name is not None:
        known = find_name(name)
        check_choice("estimator", known, tuple(CARDS))
        _show_one(console, CARDS[known])
    else:
        _show_all(console)
