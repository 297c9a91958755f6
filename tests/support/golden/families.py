"""Every family of reference vectors with its adapter, and the compact subset of them that lies in tests/golden.

Few small cases of each family show every feature of the whole set (parameters, tags, kinds of output) a few times.
"""

from tests.support.estimators.vectors import SUBSET, Api, cases_of
from tests.support.golden import advantages, losses, trl

ADAPTERS = advantages.ADAPTERS | losses.ADAPTERS | trl.ADAPTERS
FAMILIES = tuple(ADAPTERS)
COARSE = ("adv_grpo_vectorized", "adv_grpo_vectorized_nostd", "adv_gdpo_multi", "adv_of_2026")
"""Families whose source computes in float32."""


def check_subset(api: Api, family: str) -> None:
    """Every case of a family in the compact subset."""
    for case in cases_of(SUBSET, family):
        ADAPTERS[family](api, case)
