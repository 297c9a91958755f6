"""Figures as inline pictures: every panel, line and interval arrives, with the numbers that were drawn."""

import html
import json
import re
import xml.etree.ElementTree as ET
from html.parser import HTMLParser

import numpy as np
import pytest
from matplotlib.figure import Figure

from rftlab.studies.report.panels import chart_of, note, plain_text
from rftlab.studies.report.svg import MAX_POINTS, shade, svg_of
from tests.support.web.browser import HOSTILE


def drawn(**look):
    """A figure with a line, its band, error bars, a rule and a remark."""
    figure = Figure()
    ax = figure.subplots()
    x, y = np.array([0.0, 1.0, 2.0, 3.0]), np.array([0.1, 0.5, np.nan, 0.7])
    ax.plot(x, y, color="#0173b2", label="one", **look)
    ax.fill_between(x, y - 0.05, y + 0.1, color="#0173b2", alpha=0.2)
    ax.errorbar(x, y / 2, [y / 10, y / 5], color="#de8f05", marker="o", label="two")
    ax.axhline(0.25, color="#555555")
    ax.annotate("here", (1, 0.5))
    ax.set(xlabel="round", ylabel="Pass@1", title="a panel")
    figure.legend()
    return figure


def rows_of(page):
    """What each series carries."""
    return [json.loads(html.unescape(found)) for found in re.findall(r'data-v="([^"]*)"', page)]


def test_lines_carry_their_numbers_and_intervals():
    (panel,) = chart_of(drawn()).panels
    one, two = panel.series
    assert (panel.title, panel.x.label, panel.y.label) == ("a panel", "round", "Pass@1")
    assert (one.name, one.bars, two.name, two.bars) == ("one", False, "two", True)
    assert one.bounds[[0, 1, 3]] == pytest.approx(np.array([[0.05, 0.2], [0.45, 0.6], [0.65, 0.8]]))
    assert two.bounds[[0, 1, 3]] == pytest.approx(np.array([[0.04, 0.07], [0.2, 0.35], [0.28, 0.49]]))
    assert [len(rows) for rows in rows_of(svg_of(chart_of(drawn())))] == [3, 3]  # the gap is left out
    assert rows_of(svg_of(chart_of(drawn())))[0][1][2:] == [1, 0.5, 0.45, 0.6]
    assert [remark[2] for remark in panel.remarks] == ["here"] and len(panel.shapes) == 1


def test_places_are_those_of_the_axes():
    figure = Figure()
    ax = figure.subplots()
    ax.plot([1, 10, 100], [0, 1, 2], "o")
    ax.set(xscale="log", xlim=(1, 100), ylim=(0, 4))
    (panel,) = chart_of(figure).panels
    assert panel.series[0].places == pytest.approx(np.array([[0, 0], [0.5, 0.25], [1, 0.5]]))
    assert [tick.text for tick in panel.x.ticks] == ["10⁰", "10¹", "10²"]
    assert [tick.place for tick in panel.x.ticks] == pytest.approx([0, 0.5, 1])


def test_names_stand_for_places():
    figure = Figure()
    ax = figure.subplots()
    ax.plot([0, 1], [3, 4])
    ax.set_xticks([0, 1], ["(1, 256)", "(32, 8)"])
    assert [row[2] for row in rows_of(svg_of(chart_of(figure)))[0]] == ["(1, 256)", "(32, 8)"]
    ax.set_xticks([0, 1], ["0", "1"])
    assert [row[2] for row in rows_of(svg_of(chart_of(figure)))[0]] == [0, 1]


def test_a_picture_is_whole_and_its_facts_are_there():
    figure = drawn(linestyle="--")
    note(figure.axes[0], pair="qwen-gsm8k")
    note(figure.axes[0].lines[0], split="test", name="mine")
    page = str(svg_of(chart_of(figure)))
    root = ET.fromstring(f"<all>{page}</all>")
    assert root.find(".//*[@class='panel']").get("data-pair") == "qwen-gsm8k"
    series = root.findall(".//*[@class='s']")
    assert [one.get("data-n") for one in series] == ["mine", "two"] and series[0].get("data-split") == "test"
    assert "nan" not in page and "inf" not in page and 'stroke-dasharray="5 3"' in page
    assert {path.get("class") for one in series for path in one} == {"band", "line", "bars", "dot"}


KNOWN = {"class", "style", "width", "height", "viewbox", "role", "aria-label", "aria-hidden", "d", "opacity", "x", "y"}
KNOWN |= {
    "transform",
    "stroke-width",
    "stroke-dasharray",
    *(f"data-{name}" for name in ("x", "y", "n", "a", "v", "pair")),
}


def tags_of(page):
    """Names of the elements and attributes that a browser would find."""
    tags, names = set(), set()

    class Reader(HTMLParser):
        def handle_starttag(self, tag, attrs):
            tags.add(tag)
            names.update(name for name, _ in attrs)

    Reader().feed(page)
    return tags, names


@pytest.mark.parametrize("text", HOSTILE)
def test_every_text_is_escaped(text):
    figure = drawn()
    ax = figure.axes[0]
    ax.set(title=text, xlabel=text, ylabel=text)
    ax.annotate(text, (1, 0.5))
    ax.set_xticks([0, 1], [text, text])
    note(ax.lines[0], name=text, pair=text)
    page = str(svg_of(chart_of(figure)))
    tags, names = tags_of(page)
    assert tags <= {"div", "p", "b", "ul", "li", "svg", "g", "path", "text", "title"}
    assert names <= KNOWN and not page.count("</script")
    assert all(len(found) < 500 for found in re.findall(r"<text[^>]*>(.*?)</text>", page, re.DOTALL))


def test_a_chart_of_very_many_points_stays_small():
    figure = Figure()
    ax = figure.subplots()
    for i in range(20):
        ax.plot(np.arange(5000), np.sin(np.arange(5000) / (30 + i)))
    rows = rows_of(svg_of(chart_of(figure)))
    assert MAX_POINTS / 2 < sum(map(len, rows)) <= MAX_POINTS + 20 and {row[-1][2] for row in rows} == {4999}


def test_colours_are_light_enough_on_a_dark_page():
    assert shade("#440154")[0] == "#440154" and shade("#fdea3f") == ("#fdea3f", "#fdea3f")
    assert min(int(shade(colour)[1][i : i + 2], 16) for colour in ("#440154", "#555555") for i in (1, 5)) > 0x90


@pytest.mark.parametrize(
    ("label", "plain"),
    [(r"$\mathdefault{10^{-2}}$", "10⁻²"), (r"5\$ and", "5$ and"), ("plain", "plain"), ("−0.5", "−0.5")],
)
def test_labels_lose_their_mathematics(label, plain):
    assert plain_text(label) == plain
