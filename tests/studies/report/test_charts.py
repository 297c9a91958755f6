"""Charts as inline pictures and as files: every panel, line and interval arrives, with the numbers of the data."""

import html
import json
import re
import xml.etree.ElementTree as ET
from dataclasses import replace
from html.parser import HTMLParser

import numpy as np
import pytest

from rftlab.studies.report import chart as charts
from rftlab.studies.report.chart import LegendKey, MarkStyle, Panel, PlotAxis, PlotSeries, Remark, error_bars, resolve
from rftlab.studies.report.draw import picture
from rftlab.studies.report.svg import MAX_POINTS, chart_html, shade
from tests.support.web.browser import HOSTILE

BLUE, ORANGE = "#0173b2", "#de8f05"


def panel(text="a panel", dash="-", **facts):
    """A panel with a line, its band, error bars, a rule and a remark."""
    x, y = np.array([0.0, 1.0, 2.0, 3.0]), np.array([0.1, 0.5, np.nan, 0.7])
    one = PlotSeries(x, y, MarkStyle(BLUE, dash), "one", y - 0.05, y + 0.1, facts=facts)
    two = error_bars(PlotSeries(x, y / 2, MarkStyle(ORANGE, marker="o"), "two"), y / 2 - y / 10, y / 2 + y / 5)
    return Panel(
        text, PlotAxis("round"), PlotAxis("Pass@1"), (one, two), (charts.rule(0.25),), (Remark(1, 0.5, "here"),)
    )


def chart(*panels, **fields):
    return charts.Chart(panels or (panel(),), (5, 3), keys=(LegendKey("one", MarkStyle(BLUE)),), **fields)


def rows_of(page):
    """What each series carries."""
    return [json.loads(html.unescape(found)) for found in re.findall(r'data-v="([^"]*)"', str(page))]


def test_lines_carry_their_numbers_and_intervals():
    one, two = rows_of(chart_html(chart()))
    assert [len(one), len(two)] == [3, 3]  # the gap is left out
    assert one[1][2:] == [1, 0.5, 0.45, 0.6] and two[1][2:] == [1, 0.25, 0.2, 0.35]
    page = str(chart_html(chart()))
    assert "here" in page and "a panel" in page and page.count('class="line"') == 4


def test_places_are_those_of_the_axes_and_intervals_lie_along_theirs():
    line = PlotSeries([1, 10, 100], [0, 1, 2], MarkStyle())
    log = Panel("", PlotAxis("x", "log", 1, 100), PlotAxis("y", low=0, high=4), (line,))
    ((x, y),) = resolve(chart(log))
    assert x.fractions(np.array([1, 10, 100])) == pytest.approx([0, 0.5, 1])
    assert y.fractions(np.array([0, 1, 2])) == pytest.approx([0, 0.25, 0.5])
    assert [text for _, text in x.ticks] == ["10⁰", "10¹", "10²"]
    assert x.fractions(np.array([-np.inf, np.inf])).tolist() == [0, 1]
    turned = PlotAxis("x", low=1.0, high=0.0)
    ((x, _),) = resolve(chart(replace(log, x=turned)))
    assert x.fractions(np.array([0.0, 0.25])) == pytest.approx([1, 0.75])
    dots = error_bars(PlotSeries([0.5], [1.0], MarkStyle(BLUE, "", marker="o"), "one"), [0.25], [1.0], along=0)
    flat = Panel("", PlotAxis("x", low=0.0, high=1.0), PlotAxis("y", low=0.0, high=2.0), (dots,))
    path = re.search(r'class="bars" d="M([\d.]+) ([\d.]+)L([\d.]+) ([\d.]+)', str(chart_html(chart(flat))))
    left, top, right, bottom = map(float, path.groups())
    assert right - left > 100 and top == bottom


@pytest.mark.parametrize(
    ("low", "high", "texts"),
    [
        (0, 1, ["0", "0.2", "0.4", "0.6", "0.8", "1"]),
        (0.13, 0.61, ["0.2", "0.3", "0.4", "0.5", "0.6"]),
        (0, 2000, ["0", "500", "1000", "1500", "2000"]),
        (-0.3, 0.3, ["-0.2", "0", "0.2"]),
    ],
)
def test_ticks_are_round_numbers(low, high, texts):
    axis = PlotAxis("x", low=low, high=high)
    ((x, _),) = resolve(chart(Panel("", axis, PlotAxis())))
    assert [text for _, text in x.ticks] == texts
    assert all(float(text) == place for place, text in x.ticks)


@pytest.mark.parametrize("scale", ["linear", "log", "symlog"])
def test_limits_hold_all_data_and_their_intervals(scale):
    values = np.array([0.02, 0.3, 7.0])
    one = PlotSeries([1, 2, 3], values, MarkStyle(), "", values / 2, values * 2)
    ((_, y),) = resolve(chart(Panel("", PlotAxis(), PlotAxis("y", scale), (one,))))
    assert y.low <= 0.01 and y.high >= 14
    assert np.all(np.diff(y.fractions(values)) > 0) and 0 < y.fractions(values)[0] < y.fractions(values)[-1] < 1


def test_axes_that_are_shared_have_equal_limits_and_names_stand_for_places():
    small, large = (Panel("", PlotAxis(), PlotAxis(), (PlotSeries([0, 1], [0, top], MarkStyle()),)) for top in (1, 9))
    grid = (small, large, None, small)
    by_row = [axes[1].high for axes in resolve(chart(*grid, columns=2, share_y="row")) if axes]
    assert by_row == pytest.approx([9.45, 9.45, 1.05])
    alone = [axes[1].high for axes in resolve(chart(*grid, columns=2)) if axes]
    assert alone == pytest.approx([1.05, 9.45, 1.05])
    one = PlotSeries([0, 1], [3, 4], MarkStyle())
    named = Panel("", charts.names("design", ["(1, 256)", "(32, 8)"]), PlotAxis(), (one,))
    assert [row[2] for row in rows_of(chart_html(chart(named)))[0]] == ["(1, 256)", "(32, 8)"]
    plain = Panel("", PlotAxis("x", ticks={0: "0", 1: "1"}), PlotAxis(), (one,))
    assert [row[2] for row in rows_of(chart_html(chart(plain)))[0]] == [0, 1]


def test_a_picture_is_whole_and_its_facts_are_there():
    page = str(chart_html(chart(replace(panel(dash="--", split="test"), facts={"pair": "qwen-gsm8k"}))))
    root = ET.fromstring(f"<all>{page}</all>")
    assert root.find(".//*[@class='panel']").get("data-pair") == "qwen-gsm8k"
    series = root.findall(".//*[@class='s']")
    assert [one.get("data-n") for one in series] == ["one", "two"] and series[0].get("data-split") == "test"
    assert "nan" not in page and "inf" not in page and 'stroke-dasharray="5 3"' in page
    assert {path.get("class") for one in series for path in one} == {"band", "line", "bars", "dot"}


TAGS = {"div", "p", "b", "ul", "li", "svg", "g", "path", "text", "title"}
KNOWN = {"class", "style", "width", "height", "viewbox", "role", "aria-label", "aria-hidden", "d", "opacity", "x", "y",
         "transform", "stroke-width", "stroke-dasharray", *(f"data-{one}" for one in "xynav"), "data-pair"}  # fmt: skip


@pytest.mark.parametrize("text", HOSTILE)
def test_every_text_is_escaped(text):
    one = PlotSeries([0, 1], [0, 1], MarkStyle(), text, facts={"pair": text})
    beside = {"remarks": (Remark(1, 0.5, text),), "keys": (LegendKey(text, MarkStyle()),)}
    hostile = Panel(text, charts.names(text, [text, text]), PlotAxis(text), (one,), **beside)
    page, seen, parser = str(chart_html(chart(hostile, title=text))), [], HTMLParser()
    parser.handle_starttag = lambda tag, attributes: seen.append((tag, {name for name, _ in attributes}))
    parser.feed(page)  # as a browser would
    assert {tag for tag, _ in seen} <= TAGS and set().union(*(names for _, names in seen)) <= KNOWN
    assert not page.count("</script")
    assert all(len(found) < 500 for found in re.findall(r"<text[^>]*>(.*?)</text>", page, re.DOTALL))


def test_long_names_that_differ_at_their_end_are_told_apart():
    """They are cut in the middle, and whole in the title."""
    long = [f"1x64 group_zscore on 16 of 64 {end}" for end in ("m16-random", "maxreward")]
    one = PlotSeries([0, 1], [0, 1], MarkStyle())
    page = str(chart_html(chart(Panel("", PlotAxis(), charts.names("", long), (one,)))))
    shown = re.findall(r"<text[^>]*>([^<]*…[^<]*)<title>([^<]*)</title>", page)
    assert [whole for _, whole in shown] == long and len({short for short, _ in shown}) == 2
    assert all(len(short) == 24 for short, _ in shown)


def test_a_chart_of_very_many_points_stays_small_and_colours_are_light_enough_on_a_dark_page():
    x = np.arange(5000)
    waves = tuple(PlotSeries(x, np.sin(x / (30 + i)), MarkStyle()) for i in range(20))
    rows = rows_of(chart_html(chart(Panel("", PlotAxis(), PlotAxis(), waves))))
    assert MAX_POINTS / 2 < sum(map(len, rows)) <= MAX_POINTS + 20 and {row[-1][2] for row in rows} == {4999}
    assert shade("#440154")[0] == "#440154" and shade("#fdea3f") == ("#fdea3f", "#fdea3f")
    assert min(int(shade(colour)[1][i : i + 2], 16) for colour in ("#440154", "#555555") for i in (1, 5)) > 0x90


@pytest.mark.parametrize(("kind", "first"), [("png", b"\x89PNG"), ("svg", b"<?xml")])
def test_a_chart_is_a_file_and_equal_charts_are_equal_files(kind, first):
    grid = chart(panel("a $dollar$ in a title"), None, panel(), panel(), columns=2, share_x="all", share_y="row")
    found = picture(grid, kind)
    assert found.startswith(first) and found == picture(grid, kind) and found != picture(chart(), kind)


@pytest.mark.parametrize("values", [[-1.7e308, 1.7e308], [np.nan, np.nan], [np.inf, 1.0], [0.0, 0.0], [1e-320, 1.0]])
@pytest.mark.parametrize("scale", ["linear", "log", "symlog"])
def test_numbers_of_any_size_are_drawn(values, scale):
    wild = chart(Panel("", PlotAxis("x", scale), PlotAxis("y", scale), (PlotSeries(values, values, MarkStyle()),)))
    numbers = re.findall(r' d="([^"]*)"', str(chart_html(wild)))
    assert numbers and not re.search("nan|inf", "".join(numbers)) and picture(wild, "png").startswith(b"\x89PNG")
