"""The page of a forecast, in a browser too."""

import json
import re

import numpy as np
import pandas as pd
import pytest

from rftlab.studies.forecast.run import seen, write_page
from tests.support.web.browser import HOSTILE


def table(**more):
    """Forecasts of four designs, two of which were run."""
    rows = [("32x8", 0.5, 0.45, 0.55, 0.52, True), ("256x1", 0.4, 0.35, 0.45, np.nan, True),
            ("1x256", 0.3, 0.2, 0.4, 0.41, False), ("64x4", 0.45, 0.41, 0.5, np.nan, True)]  # fmt: skip
    names = ["cell", "forecast", "low", "high", "measured", "in_budget"]
    return pd.DataFrame(rows, columns=names).assign(**{"rollouts": 256_000, "best": np.nan, "outside": ""} | more)


@pytest.fixture(scope="module")
def page(tmp_path_factory):
    beside = {"share": 0.04, "best": [0.9, 0.2, np.nan, 0.4], "law": [0.51, 0.44, 0.2, 0.5]}
    beside |= {"law_low": 0.1, "law_high": [0.6, 0.5, 0.3, 0.7], "still": 0.3, "simulator": np.nan}
    return write_page(tmp_path_factory.mktemp("page"), "a pair", table(**beside), "32x8", ["a note"])


def test_every_column_is_shown_and_the_best_first(page):
    text = page.read_text()
    heads = re.findall(r"<th scope=\"col\"[^>]*>([^<]*)</th>", text)
    assert heads == ["design", "rollouts", "of all", "forecast", "measured", "best", "law", "still"]
    rows = re.findall(r"<th scope=\"row\" data-label=\"design\">([\dx]+)", text)
    assert rows == ["32x8", "64x4", "256x1", "1x256"]
    assert "0.510 <small>[0.100, 0.600]</small>" in text and "law_low" not in text
    assert "a note" in text and "beyond the budget" in text and text.count("recommended</small>") == 1


def test_a_table_of_runs_has_no_share_of_a_grid_and_names_of_forecasts_alone_are_code(tmp_path):
    text = write_page(tmp_path, "t", table(), "32x8", ["not ahead of `steps` and `<b>still</b>`"]).read_text()
    assert ">of all<" not in text and "other forecasts" not in text
    assert "<li>not ahead of <code>steps</code> and <code>&lt;b&gt;still&lt;/b&gt;</code></li>" in text


def test_trust_is_what_the_table_shows():
    apart, known = seen(table(), "32x8")
    assert apart.startswith("The 80% intervals of 2 of 2 other designs") and "not told apart" in apart
    assert "The forecast of the 2 designs that were run is 0.065 off on average" in known and "has 1." in known
    narrow = table(high=[0.55, 0.4, 0.4, 0.44], measured=np.nan)
    assert len(seen(narrow, "32x8")) == 1 and "stands alone" in seen(narrow, "32x8")[0]


@pytest.mark.parametrize("width", [390, 1400])
@pytest.mark.parametrize("theme", ["light", "dark"])
def test_it_fits_and_is_accessible(browser, page, width, theme):
    browser.open(page, width, theme)
    browser.sound()


def test_marks_tell_numbers_and_headings_sort(browser, page):
    browser.open(page)
    plots = browser.run("return [...document.querySelectorAll('g.s')].map(e => e.dataset.v)")
    values = {row[2] for text in plots for row in json.loads(text)}
    assert {0.5, 0.4, 0.3, 0.45} <= values
    browser.run("document.querySelector('#designs thead th:nth-child(2) + th + th button').click()")
    first = browser.run("return document.querySelector('#designs tbody tr').textContent")
    assert first.startswith("1x256")  # ascending by forecast


def test_hostile_names_are_shown_and_do_nothing(browser, tmp_path):
    names = [*HOSTILE[:4]]
    made = table(cell=names, **dict.fromkeys(HOSTILE[4:], 0.5))
    browser.open(write_page(tmp_path, HOSTILE[0], made, names[0], list(HOSTILE)), 390)
    shown = browser.run("return document.body.textContent")
    assert all(" ".join(text.split())[:40] in " ".join(shown.split()) for text in HOSTILE)
    assert browser.driver.title == f"rftlab predict: {HOSTILE[0]}"
    browser.sound()
