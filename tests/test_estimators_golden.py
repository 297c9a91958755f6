"""Reference vectors: numbers that other libraries' own functions gave, reached by the package's public path, to 1e-9."""

import pytest

from tests.vectors import FAMILIES, LARGEST, REAL, SUBSET, WHOLE, cases_of, check_subset, folder_of


def every_case():
    """(family, case) of the compact subset and of the whole set; one skipped entry for each family that the whole set lacks."""
    for source, folder in (("subset", SUBSET), ("whole", WHOLE)):
        for family in FAMILIES:
            cases = cases_of(folder, family)
            yield from (pytest.param(family, case, id=f"{source}-{family}-{case.name}") for case in cases)
            if not cases:
                reason = f"no reference vectors: {folder_of(folder) / family}.json is absent or empty (RFTLAB_GOLDEN names the folder)"
                yield pytest.param(family, None, id=f"{source}-{family}", marks=pytest.mark.skip(reason=reason))


@pytest.mark.parametrize(("family", "case"), list(every_case()))
def test_case(family, case):
    FAMILIES[family](REAL, case)


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("folder", [SUBSET, WHOLE], ids=["subset", "whole"])
def test_family_compares_numbers(folder, family):
    """An adapter that silently compares nothing would pass every case."""
    cases = cases_of(folder, family)
    if not cases and folder == WHOLE:
        pytest.skip(f"no reference vectors in {folder} (RFTLAB_GOLDEN names the folder)")
    assert sum(FAMILIES[family](REAL, case) for case in cases) >= len(cases) > 0


def test_subset_is_compact():
    assert sum(path.stat().st_size for path in folder_of(SUBSET).glob("*.json")) < LARGEST
    assert {path.stem for path in folder_of(SUBSET).glob("*.json")} == set(FAMILIES)


@pytest.mark.parametrize("family", FAMILIES)
def test_wrong_reference_is_refused(family):
    """Every number that a case compares counts: shifted by 1e-6, the first one alone makes the check fail."""
    case = cases_of(SUBSET, family)[0]
    check_subset(REAL, family)
    with pytest.raises(AssertionError, match=case.name):
        FAMILIES[family](REAL, case._replace(outputs=shifted(case.outputs, [1e-6])))


def shifted(value, left: list[float]):
    """The same nested outputs with the first number raised by left[0] relative to max(1, |x|), which is then used up."""
    if isinstance(value, dict):
        return {key: shifted(item, left) for key, item in value.items()}
    if isinstance(value, list):
        return [shifted(item, left) for item in value]
    return value + left.pop() * max(1.0, abs(value)) if left and value is not None else value
