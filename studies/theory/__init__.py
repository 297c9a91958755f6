"""Statements about RFT estimators, each with an experiment that tests it: algebra, variance, dynamics, batched regret,
parts of published recipes, evaluation.

The statements of the checks are in assets/theory.toml. A check (studies/theory/check.py) compares a formula with the
estimators of `shared` and with the simulator. It also runs on its mutants, wrong estimators, on which its claims must
fail. Ids T and S are the statements of the study, D those that were derived for it.
"""

from rftlab.studies.theory import algebra, dynamics, effective, recipes, regret, replay, variance
from rftlab.studies.theory.check import Check

_MODULES = (algebra, variance, replay, effective, dynamics, regret, recipes)
_BY_ID = {check.id: check for module in _MODULES for check in vars(module).values() if isinstance(check, Check)}
_IDS = {
    "Estimator algebra": [f"T{n}" for n in range(1, 10)],
    "Variance": [f"T{n}" for n in range(10, 19)],
    "Dynamics": [f"T{n}" for n in range(19, 26)],
    "Batched regret": [f"T{n}" for n in range(26, 31)],
    "Parts of published recipes": [f"T{n}" for n in range(31, 36)],
    "Statistics of the evaluation": [f"S{n}" for n in range(1, 5)],
    "Derived here": sorted((name for name in _BY_ID if name.startswith("D")), key=lambda name: int(name[1:])),
}
GROUPS: dict[str, tuple[Check, ...]] = {title: tuple(_BY_ID[name] for name in ids) for title, ids in _IDS.items()}
"""Checks by the title of their group, in the order of the page."""
ALL_CHECKS: tuple[Check, ...] = tuple(check for group in GROUPS.values() for check in group)
