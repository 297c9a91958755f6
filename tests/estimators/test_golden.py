"""Reference vectors: numbers that other libraries' own functions gave, reached by the package's public path, to the
tolerance of each family."""

import os
import re
import subprocess
import sys
from itertools import product

import pytest

from tests.support.estimators.vectors import REAL, ROOT, SUBSET, WHOLE, cases_of, folder_of
from tests.support.golden.families import ADAPTERS, COARSE, FAMILIES, LARGEST
from tests.support.golden.losses import check_micro_batches


def every_case():
    """(family, case) of the compact subset and of the whole set; one skipped entry for each family that the whole
    set lacks."""
    for source, folder in (("subset", SUBSET), ("whole", WHOLE)):
        for family in FAMILIES:
            cases = cases_of(folder, family)
            yield from (pytest.param(family, case, id=f"{source}-{family}-{case.name}") for case in cases)
            if not cases:
                reason = (
                    f"no reference vectors: {folder_of(folder) / family}.json is absent or empty "
                    "(RFTLAB_GOLDEN names the folder)"
                )
                yield pytest.param(family, None, id=f"{source}-{family}", marks=pytest.mark.skip(reason=reason))


@pytest.mark.parametrize(("family", "case"), list(every_case()))
def test_case(family, case):
    ADAPTERS[family](REAL, case)


@pytest.mark.parametrize("folder", [SUBSET, WHOLE], ids=["subset", "whole"])
def test_micro_batch_means_average_the_token_means_of_the_papers_fork(folder):
    """Two of its batches one after the other, as its update takes micro-batches; the second may have fewer rows."""
    cases = [case for case in cases_of(folder, "agg_modes") if case.params == {"agg_mode": "token-mean"}]
    if not cases and folder == WHOLE:
        pytest.skip(f"no reference vectors in {folder} (RFTLAB_GOLDEN names the folder)")
    compared = 0
    for first, second in product(cases, repeat=2):
        size, rest = (len(case.inputs["mask"]) for case in (first, second))
        if rest <= size:
            compared += check_micro_batches(REAL, (first, second), size)
    assert compared >= len(cases) > 0


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("folder", [SUBSET, WHOLE], ids=["subset", "whole"])
def test_family_compares_numbers(folder, family):
    """An adapter that silently compares nothing would pass every case."""
    cases = cases_of(folder, family)
    if not cases and folder == WHOLE:
        pytest.skip(f"no reference vectors in {folder} (RFTLAB_GOLDEN names the folder)")
    assert sum(ADAPTERS[family](REAL, case) for case in cases) >= len(cases) > 0


def test_every_file_has_an_adapter():
    """A file that nobody reads would look as if it were checked."""
    for folder in (SUBSET, WHOLE):
        files = {path.stem for path in folder_of(folder).glob("*.json")}
        assert files <= set(FAMILIES) and (folder != SUBSET or files == set(FAMILIES))


@pytest.mark.parametrize("there", [False, True])
def test_a_mistyped_folder_is_an_error(tmp_path, there):
    folder = tmp_path / "typo"
    if there:
        folder.mkdir()
    command = [sys.executable, "-m", "pytest", "--collect-only", "-p", "no:cacheprovider", __file__]
    done = subprocess.run(
        command, capture_output=True, text=True, timeout=300, cwd=ROOT, env=os.environ | {"RFTLAB_GOLDEN": str(folder)}
    )
    assert done.returncode == pytest.ExitCode.USAGE_ERROR
    assert (
        done.stderr.strip() == f"ERROR: RFTLAB_GOLDEN: {folder} holds no json file; allowed: "
        "a folder of reference vectors, or no RFTLAB_GOLDEN"
    )


def test_subset_is_compact():
    assert sum(path.stat().st_size for path in folder_of(SUBSET).glob("*.json")) < LARGEST


def every_output():
    """(family, key) of everything that the source recorded; what Clip-Cov drew from is an input."""
    for family in FAMILIES:
        yield from (
            (family, key)
            for key in dict.fromkeys(key for case in cases_of(SUBSET, family) for key in case.outputs)
            if key not in ("perm", "clip_num")
        )


@pytest.mark.parametrize(("family", "key"), list(every_output()))
def test_wrong_reference_is_refused(family, key):
    """Everything that was recorded is compared: its first number, shifted a little, makes the check fail."""
    shift, refused = 1e-3 if family in COARSE else 1e-5, 0
    for case in cases_of(SUBSET, family):
        wrong = case._replace(outputs=case.outputs | {key: shifted(case.outputs.get(key), [shift])})
        if wrong.outputs.get(key) == case.outputs.get(key) or ADAPTERS[family](REAL, case) == 0:
            continue
        with pytest.raises(AssertionError, match=re.escape(case.name)):
            ADAPTERS[family](REAL, wrong)
        refused += 1
    assert refused or all(case.outputs.get(key) is None for case in cases_of(SUBSET, family))


def shifted(value, left: list[float]):
    """The same nested outputs with the first number raised by left[0] relative to max(1, |x|), which is then used
    up."""
    if isinstance(value, dict):
        return {key: shifted(item, left) for key, item in value.items()}
    if isinstance(value, list):
        return [shifted(item, left) for item in value]
    return value + left.pop() * max(1.0, abs(value)) if left and value is not None else value
