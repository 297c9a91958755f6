"""The pages on planning and on checking runs print what they say."""

import pytest

from tests.support.docs.pages import run_page
from tests.support.estimators.vectors import ROOT


@pytest.mark.parametrize(("page", "blocks"), [("plan.md", 4), ("lab/law.md", 1), ("diagnose.md", 6), ("check.md", 2)])
def test_a_page_prints_what_it_says(page, blocks, tmp_path):
    assert run_page((ROOT / "docs" / page).read_text(), tmp_path) == blocks
