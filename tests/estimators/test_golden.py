"""Reference vectors: numbers that other libraries' own functions gave, reached by the package's public path, to the
tolerance of each family."""

import os
import re
import subprocess
import sys
from itertools import product

import pytest

from tests.support.estimators.vectors import REAL, ROOT, SUBSET, WHOLE, cases_of, folder_of
from tests.support.golden.families import ADAPTERS, COARSE, FAMILIES
from tests.support.golden.losses import check_micro_batches


def cases_or_skip(folder, family):
    """Cases of a family; the test is skipped where the whole set lacks them."""
    cases = cases_of(folder, family)
    if not cases and folder == WHOLE:
        pytest.skip(f"no reference vectors: {folder_of(folder) / family}.json is absent or empty (RFTLAB_GOLDEN)")
    return cases


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("folder", [SUBSET, WHOLE], ids=["subset", "whole"])
def test_every_case_of_a_family(folder, family):
    """An adapter that silently compares nothing would pass every case."""
    cases = cases_or_skip(folder, family)
    assert sum(ADAPTERS[family](REAL, case) for case in cases) >= len(cases) > 0


@pytest.mark.parametrize("folder", [SUBSET, WHOLE], ids=["subset", "whole"])
def test_micro_batch_means_average_the_token_means_of_the_papers_fork(folder):
    """Two of its batches one after the other, as its update takes micro-batches; the second may have fewer rows."""
    cases = [case for case in cases_or_skip(folder, "agg_modes") if case.params == {"agg_mode": "token-mean"}]
    compared = 0
    for first, second in product(cases, repeat=2):
        size, rest = (len(case.inputs["mask"]) for case in (first, second))
        if rest <= size:
            compared += check_micro_batches(REAL, (first, second), size)
    assert compared >= len(cases) > 0


def test_every_file_has_an_adapter():
    """A file that nobody reads would look as if it were checked."""
    for folder in (SUBSET, WHOLE):
        files = {path.stem for path in folder_of(folder).glob("*.json")}
        assert files <= set(FAMILIES) and (folder != SUBSET or files == set(FAMILIES))
    assert sum(path.stat().st_size for path in folder_of(SUBSET).glob("*.json")) < 500_000, "the subset is compact"


@pytest.mark.parametrize("there", [False, True])
def test_a_mistyped_folder_is_an_error(tmp_path, there):
    folder = tmp_path / "typo"
    if there:
        folder.mkdir()
    command = [sys.executable, "-m", "pytest", "--collect-only", "-p", "no:cacheprovider", __file__]
    environment = os.environ | {"RFTLAB_GOLDEN": str(folder)}
    done = subprocess.run(command, capture_output=True, text=True, timeout=1200, cwd=ROOT, env=environment)
    assert done.returncode == pytest.ExitCode.USAGE_ERROR
    assert f"RFTLAB_GOLDEN: {folder} holds no json file; allowed: a folder of reference vectors" in done.stderr


OUTPUTS = [
    pair
    for family in FAMILIES
    for pair in dict.fromkeys((family, key) for case in cases_of(SUBSET, family) for key in case.outputs)
    if pair[1] not in ("perm", "clip_num")
]
"""Everything that the sources recorded, but for what Clip-Cov drew from, which is an input."""


@pytest.mark.parametrize(("family", "key"), OUTPUTS)
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
