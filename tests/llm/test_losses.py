"""The estimators on tensors: every check of the compiled ones, reference vectors included, packed and padded."""

import pytest

torch = pytest.importorskip("torch")

from tests.support.checks import naive, naive_objective
from tests.support.golden.families import ADAPTERS, FAMILIES
from tests.support.tensors import tensor_api
from tests.support.vectors import SUBSET, cases_of

CHECKS = naive.CHECKS | naive_objective.CHECKS
UNTOUCHED = ("check_optimal_baseline", "check_windows", "check_averages", "check_sampling")
APIS = {"packed": tensor_api(padded=False), "padded": tensor_api(padded=True)}


@pytest.mark.parametrize("layout", APIS)
@pytest.mark.parametrize("name", [name for name in CHECKS if name not in UNTOUCHED])
def test_twin(name, layout):
    CHECKS[name](APIS[layout])


@pytest.mark.parametrize("layout", APIS)
@pytest.mark.parametrize("family", FAMILIES)
def test_reference_vectors(family, layout):
    cases = cases_of(SUBSET, family)
    assert sum(ADAPTERS[family](APIS[layout], case) for case in cases) >= len(cases) > 0
