"""The notebooks of examples/ print what is kept in them, when they are executed anew."""

import copy
import json

import pytest

from tests.support.docs.notebooks import cells_of, differences, executed, notebooks, page_of, printed_of
from tests.support.estimators.vectors import ROOT

LARGEST = 100_000
"""Bytes of a notebook with what it prints."""


@pytest.fixture
def needed():
    pytest.importorskip("nbclient", reason="needs nbclient, of the extra test")
    pytest.importorskip("ipykernel", reason="needs ipykernel, of the extra test")


@pytest.mark.parametrize("path", notebooks(), ids=lambda path: path.stem)
def test_a_notebook_prints_what_it_says(path, needed, tmp_path):
    assert differences(cells_of(path), executed(path, tmp_path)["cells"]) == []


@pytest.mark.parametrize("path", notebooks(), ids=lambda path: path.stem)
def test_a_notebook_was_executed_as_a_whole_and_is_small(path):
    code = [cell for cell in cells_of(path) if cell["cell_type"] == "code"]
    assert [cell["execution_count"] for cell in code] == list(range(1, len(code) + 1))
    assert all(printed_of(cell) for cell in code) and path.stat().st_size < LARGEST
    assert page_of(path).startswith("# ") and "```python\n" in page_of(path)


def test_the_site_shows_all_of_them():
    assert [path.stem for path in notebooks()] == ["design-curve-sweep", "own-estimator", "own-runs"]
    assert [path.resolve() for path in sorted((ROOT / "docs" / "notebooks").iterdir())] == notebooks()


CELL = {
    **{"cell_type": "code", "id": "a", "metadata": {}, "execution_count": 1},
    "source": ["import sys\n", "print('\\x1b[1mseven\\x1b[0m', 7, flush=True)\n", "sys.stderr.write('x'); 8"],
    "outputs": [
        {"output_type": "stream", "name": "stdout", "text": ["seven 7\n"]},
        {"output_type": "execute_result", "execution_count": 1, "metadata": {}, "data": {"text/plain": ["8"]}},
    ],
}
KERNEL = {"name": "python3", "display_name": "Python 3", "language": "python"}
BOOK = {"nbformat": 4, "nbformat_minor": 5, "metadata": {"kernelspec": KERNEL}, "cells": [CELL]}


def test_a_notebook_that_lies_or_fails_is_found(needed, tmp_path):
    path, book = tmp_path / "book.ipynb", copy.deepcopy(BOOK)
    path.write_text(json.dumps(book))
    made = executed(path, tmp_path)["cells"]
    assert differences(cells_of(path), made) == []
    for place, wrong in ((0, {"text": ["seven 8\n"]}), (1, {"data": {"text/plain": ["9"]}})):
        kept = [copy.deepcopy(CELL)]
        kept[0]["outputs"][place] |= wrong
        (told,) = differences(kept, made)
        assert told.startswith("cell 1\n") and "seven" in told
    book["cells"][0]["source"] = ["1 / 0"]
    path.write_text(json.dumps(book))
    with pytest.raises(Exception, match="ZeroDivisionError") as error:
        executed(path, tmp_path)
    assert type(error.value).__name__ == "CellExecutionError"
