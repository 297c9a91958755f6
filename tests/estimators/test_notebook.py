"""How objects show themselves in a notebook."""

import xml.etree.ElementTree as tree
from dataclasses import dataclass, replace

import numpy as np
import pytest

from rftlab import Curve, Design, Estimator
from rftlab.shared.cards import PRESETS, preset
from rftlab.shared.plumbing.notebook import LONGEST, changed_table, polylines, table


def rows(html):
    """Names and values of a table, which must be well formed."""
    found = tree.fromstring(f"<all>{html}</all>")
    return {row[0].text: row[1].text for row in found.iter("tr")}


def curve(test):
    columns = dict.fromkeys(Curve._fields, np.arange(len(test), dtype=float))
    return Curve(**columns | {"test_pass_at_1": np.array(test), "train_pass_at_1": np.array(test)})


def test_a_design_shows_what_differs_however_deep():
    assert rows(Design()._repr_html_()) == {"all fields": "at their defaults"}
    design = Design(64, 8, estimator=replace(preset("gspo"), entropy=0.01))
    found = rows(design._repr_html_())
    assert (found["batch_size"], found["rollouts"], found["estimator.entropy"]) == ("64", "8", "0.01")
    assert "estimator.ratio.level" in found and "rounds" not in found


@pytest.mark.parametrize("name", PRESETS)
def test_every_estimator_shows_itself(name):
    found = rows(preset(name)._repr_html_())
    assert (found == {"all fields": "at their defaults"}) == (preset(name) == Estimator())


def test_another_kind_of_part_is_named():
    assert rows(preset("cispo")._repr_html_())["surrogate"] == "Cispo"


def test_a_curve_is_a_picture_and_its_end():
    html = curve([0.0, np.nan, 0.5, 1.0])._repr_html_()
    lines = tree.fromstring(f"<all>{html}</all>").findall("svg/polyline")
    assert lines[0].get("points") == "6.0,114.0 238.0,60.0 354.0,6.0"  # the nan is left out
    assert [line.get("stroke-dasharray") for line in lines] == [None, "5 4"]
    assert rows(html)["test Pass@1"] == "1" and rows(curve([])._repr_html_()) == {}


@dataclass(frozen=True)
class Named:
    name: str = ""


@pytest.mark.parametrize("text", ["<script>alert(1)</script>", "\"'><img src=x>", "&lt;", "a" * 9999])
def test_values_are_texts(text):
    shown = text if len(text) <= LONGEST else "a" * (LONGEST - 1) + "…"
    assert rows(changed_table(text, Named(text))) == {"name": shown}
    assert rows(table("x", [(text, 1)])) == {text: "1"}
    assert tree.fromstring(polylines({text: ([0.0, 1.0], [0.0, 1.0])})).get("aria-label") == text
