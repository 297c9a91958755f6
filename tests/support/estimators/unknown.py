"""Choices that no kernel knows, planted in each part of an estimator: as a name, and as the code of a name that was
listed and not computed."""

import importlib
from dataclasses import replace

import rftlab as rl
from rftlab.shared.config.correction import Correction
from rftlab.shared.config.mask import Divergence

USES = {
    "advantage": rl.Advantage("group_mean", "group_std", whiten="responses"),
    "kl": rl.KL("k1", 0.1),
    "mask": Divergence(),
    "correction": Correction("truncate"),
}
"""Parts whose defaults ask for nothing."""
CHOICES = [
    *(("advantage", f"{name}Kind", name.lower()) for name in ("Credit", "Baseline", "Scale", "Whiten", "Combine")),
    ("advantage", "SingletonRule", "singleton"),
    ("aggregation", "AggregationKind", "kind"),
    ("aggregation", "EmptyRule", "empty"),
    ("correction", "CorrectionKind", "kind"),
    ("correction", "CorrectionLevel", "level"),
    ("kl", "KLKind", "kind"),
    ("kl", "KLPlace", "place"),
    ("kl", "KLAnchor", "anchor"),
    ("mask", "Mask", None),
    ("mask", "Measure", "measure"),
    ("ratio", "RatioLevel", "level"),
    ("surrogate", "Surrogate", None),
]
"""Part of an estimator, the list of its choices, the field; None where the part's class is the choice."""
AS_WORDS = ("EmptyRule", "KLPlace", "KLAnchor")
"""Choices that become no code."""


def planted(part: str, listed: str, field: str | None, as_code: bool, monkeypatch) -> rl.Estimator:
    """An estimator with an unknown choice."""
    estimator = replace(rl.Estimator(), **({part: USES[part]} if part in USES else {}))
    if as_code:
        module = importlib.import_module(f"rftlab.shared.config.{part}")
        real, choices = module.code_for, getattr(module, listed)
        monkeypatch.setattr(module, "code_for", lambda c, value: 99 if c is choices else real(c, value))
    else:
        object.__setattr__(getattr(estimator, part), field, "bogus")
    return estimator


CASES = [
    (*choice, as_code)
    for choice in CHOICES
    for as_code in (False, True)
    if not (as_code and choice[1] in AS_WORDS) and not (not as_code and choice[2] is None)
]
