"""Statements about RFT estimators, each with an experiment that decides it: algebra, variance, dynamics, batched
regret, parts of published recipes, evaluation.

A check (studies/theory/check.py) compares what a formula says with what the estimators of `shared` and the simulator
do; it also runs on its mutants, wrong estimators, on which its claims must fail. Ids T and S are the statements of the
study, D those that were derived for it.
"""

from rftlab.studies.theory import (
    algebra,
    dynamics,
    effective,
    evaluation,
    objectives,
    recipes,
    regret,
    replay,
    splits,
    variance,
)
from rftlab.studies.theory.check import Check

_FOUND = {
    "Estimator algebra": algebra.CHECKS + objectives.CHECKS,
    "Variance": variance.CHECKS + splits.CHECKS + replay.CHECKS + effective.CHECKS,
    "Dynamics": dynamics.CHECKS,
    "Batched regret": regret.CHECKS,
    "Parts of published recipes": recipes.CHECKS,
    "Statistics of the evaluation": evaluation.CHECKS,
}


def _is_derived(check: Check) -> bool:
    return check.id.startswith("D")


GROUPS: dict[str, tuple[Check, ...]] = {
    title: tuple(c for c in checks if not _is_derived(c)) for title, checks in _FOUND.items()
}
"""Checks by the title of their group, in the order of the page."""
GROUPS["Derived here"] = tuple(
    sorted((c for checks in _FOUND.values() for c in checks if _is_derived(c)), key=lambda c: int(c.id[1:]))
)
ALL_CHECKS: tuple[Check, ...] = tuple(check for group in GROUPS.values() for check in group)
