"""The explorer in a real browser."""

import csv
from urllib.parse import urlencode, urlsplit

import pytest

from rftlab.shared.cards import CARDS
from rftlab.studies.explore.choices import KNOBS, Scene, field_help, to_address, visible_name
from tests.support.web.browser import Page, missing, until
from tests.support.web.explorer_page import HOSTILE, chromium, explorer, requested, series, settled, text_of

pytestmark = pytest.mark.skipif(bool(missing("nicegui")), reason=missing("nicegui"))
Keys = pytest.importorskip("selenium.webdriver", reason=missing()).Keys
ActionChains = pytest.importorskip("selenium.webdriver", reason=missing()).ActionChains
SHORT, LONG = "B=8&K=4&rounds=200", "B=8&K=4&rounds=4000"
"""LONG: its map takes so long that a hand can stop it."""


@pytest.fixture(scope="module")
def address():
    with explorer() as (found, _):
        yield found


@pytest.fixture(scope="module")
def driver():
    with chromium(1400) as found:
        yield found


@pytest.fixture(autouse=True)
def nothing_strange(driver, address):
    """After every test: no error in the console, and no request to another host."""
    yield
    assert [entry for entry in driver.get_log("browser") if entry["level"] == "SEVERE"] == []
    assert {found for found in requested(driver) if urlsplit(found)[1] != urlsplit(address).netloc} == set()


def click(driver, place):
    driver.execute_script("document.querySelector(arguments[0]).click()", place)


def press(driver, place, *keys):
    """Put the focus on an element and press keys."""
    driver.find_element("css selector", place).send_keys(*keys)


def link(driver):
    return driver.execute_script("return document.querySelector('#link').href")


TO_ITS_FIRST_STOP = """
    const slider = document.querySelector(arguments[0]);
    slider.value = 0;
    slider.dispatchEvent(new Event('input'));
"""


def linked(driver, part):
    """Wait until the link says something."""
    return until(lambda: part in link(driver) and link(driver), f"{part} in the link")


def test_the_page_loads_and_a_slider_moves_the_curve(driver, address):
    driver.get(f"{address}?{SHORT}")
    first = settled(driver)
    assert [len(points) for name, points in first.items() if name.startswith("now")] == [21] * 5
    press(driver, "#knob-B", Keys.ARROW_RIGHT, Keys.ARROW_RIGHT)
    linked(driver, "B=32")
    second = settled(driver)
    assert len(second["now, test"]) == 21 and second["now, test"] != first["now, test"]
    assert second["now, test"][0] == first["now, test"][0]  # the base policy is the same


def test_a_pinned_curve_stays_and_the_link_restores_it(driver, address):
    driver.get(f"{address}?{SHORT}")
    before = settled(driver)
    press(driver, "input[aria-label=Name]", "mine")
    click(driver, "#pin")
    linked(driver, "name=mine")
    press(driver, "#knob-K", Keys.ARROW_RIGHT)
    place = linked(driver, "K=8")
    after = settled(driver)
    assert after["mine, test"] == before["now, test"] != after["now, test"]
    driver.get(place)
    until(lambda: len(series(driver).get("mine, test", [])) == 21, "the pinned curve again")
    again = settled(driver)
    assert all(again[name] == after[name] for name in after if "seed" not in name)
    click(driver, "button[aria-label='remove mine']")
    until(lambda: "mine, test" not in series(driver) and "name=mine" not in link(driver), "the pin's end")


def test_the_map_fills_stops_and_shows_a_curve(driver, address):
    driver.get(f"{address}?{LONG}")
    settled(driver)
    click(driver, "#heat-fill")
    until(lambda: text_of(driver, "#heat-8-1"), "the first cell")
    click(driver, "#heat-stop")
    until(lambda: "stopped" in text_of(driver, "#heat-status"), "the map's end")
    stopped = text_of(driver, "#heat-status")
    driver.execute_script(TO_ITS_FIRST_STOP, "#knob-rounds")
    linked(driver, "rounds=200")
    settled(driver)
    click(driver, "#heat-fill")
    until(lambda: "cells, done" in text_of(driver, "#heat-status") or "out, done" in text_of(driver, "#heat-status"),
          "the whole map")  # fmt: skip
    assert int(stopped.split()[0]) < int(text_of(driver, "#heat-status").split()[0])
    value = float(text_of(driver, "#heat-32-4"))
    click(driver, "#heat-32-4")
    linked(driver, "B=32&K=4")
    ends = {name: points[-1][1] for name, points in settled(driver).items()}
    assert abs(ends["now, test, seed 0"] - value) < 0.006


def test_a_cell_at_equal_rollouts_shows_the_curve_it_is_of(driver, address):
    driver.get(f"{address}?{SHORT}&axis=rollouts")
    settled(driver)
    click(driver, "#heat-fill")
    until(lambda: "done, at 6.4 k rollouts each" in text_of(driver, "#heat-status"), "the whole map")
    value = float(text_of(driver, "#heat-16-8"))
    click(driver, "#heat-16-8")
    linked(driver, "B=16&K=8&rounds=50")
    assert abs(settled(driver)["now, test, seed 0"][-1][1] - value) < 0.006
    until(lambda: driver.find_elements("css selector", "#heat-16-8.here"), "a frame around the cell")
    assert "other choices" not in text_of(driver, "#heat-status")
    why = "return document.querySelector('#heat-1024-64').title"
    assert driver.execute_script(why) == "B 1024, K 64: 0 rounds"
    driver.execute_script(TO_ITS_FIRST_STOP, "#knob-rate")
    until(lambda: "of other choices" in text_of(driver, "#heat-status"), "a word that the map is an old one")


def test_the_keyboard_suffices(driver, address):
    driver.get(f"{address}?{LONG}")
    settled(driver)

    def go(name, *keys):
        """Tab until an element has the focus, then press keys."""
        for _ in range(140):
            ActionChains(driver).send_keys(Keys.TAB).perform()
            if driver.execute_script("return document.activeElement.id") == name:
                ActionChains(driver).send_keys(*keys).perform()
                return
        raise AssertionError(f"the focus never came to {name}")

    go("knob-B", Keys.ARROW_RIGHT)
    linked(driver, "B=16")
    go("pin", Keys.ENTER)
    linked(driver, "name=pinned")
    go("heat-fill", Keys.SPACE)
    until(lambda: text_of(driver, "#heat-8-1"), "the first cell")
    go("heat-stop", Keys.ENTER)
    until(lambda: "stopped" in text_of(driver, "#heat-status"), "the map's end")
    go("heat-8-1", Keys.ENTER)
    linked(driver, "B=8&K=1")


def test_quick_changes_cancel_each_other(driver, address):
    driver.get(f"{address}?B=8&K=4&rounds=200")
    settled(driver)
    press(driver, "#knob-B", *[Keys.ARROW_RIGHT, Keys.ARROW_LEFT] * 10, Keys.ARROW_RIGHT, Keys.ARROW_RIGHT)
    linked(driver, "B=32")  # where only the last key leads
    quick = settled(driver)
    driver.get(f"{address}?B=32&K=4&rounds=200")
    assert settled(driver)["now, test"] == quick["now, test"]


def test_every_menu_and_slider_says_what_it_is(driver, address):
    driver.get(f"{address}?{SHORT}&estimator=dr_grpo")
    settled(driver)
    hint = "return [...document.querySelectorAll('.field, .knob')].map(e => e.querySelector('.hint').textContent)"
    hints = driver.execute_script(hint)
    assert len(hints) == 3 + len(KNOBS) and min(map(len, hints)) > 10
    assert text_of(driver, "#formula") == CARDS["dr_grpo"].formula
    page = text_of(driver, ".page")
    assert all(field_help(Scene, name) in page for name in ("axis", "over", "gpu"))


def test_two_windows_do_not_disturb_each_other(driver, address):
    driver.get(f"{address}?{SHORT}")
    mine, first = settled(driver), driver.current_window_handle
    driver.switch_to.new_window("tab")
    driver.get(f"{address}?{SHORT}")
    settled(driver)
    press(driver, "#knob-B", Keys.ARROW_RIGHT)
    linked(driver, "B=16")
    driver.close()
    driver.switch_to.window(first)
    assert "B=8" in link(driver) and series(driver)["now, test"] == mine["now, test"]


def test_hostile_names_are_texts(driver, address):
    for names in (HOSTILE[:5], HOSTILE[5:]):
        scene = Scene()
        pins = [("pin", SHORT), ("name", "")]
        given = [part for name in names for part in (pins[0], ("name", name))]
        driver.get(f"{address}?{SHORT}&{urlencode(given)[:19_000]}")
        settled(driver)
        shown = until(
            lambda: len(found := driver.execute_script(
                "return [...document.querySelectorAll('.pins tbody tr td:first-child')].map(x => x.textContent)"
            )) == 6 and found, "a row each")  # fmt: skip
        for name in names:
            scene = scene.pinning(name)
        assert shown[1:] == [pin.name for pin in scene.pins] and all(len(name) <= 80 for name in shown)
        driver.execute_script(
            "const chart = getElement(Number(document.querySelector('.chart').id.slice(1))).chart;"
            "chart.dispatchAction({type: 'showTip', seriesIndex: 5, dataIndex: 3})"
        )
        strange = "return document.querySelectorAll('.page img, .page script, .chart img, .chart script').length"
        assert driver.execute_script(strange) == 0 and "alert" not in (driver.title or "")
    assert to_address(scene).isascii() and visible_name(HOSTILE[6]) == "a" * 80


def test_what_is_wrong_with_an_address_is_said(driver, address):
    driver.get(f"{address}?B=0&estimator=%3Cscript%3E")
    until(lambda: "is unknown; allowed" in text_of(driver, "#error"), "a line that says what is wrong")


def whole(file):
    """Whether a download is done: until then its bytes are in a file of another name."""
    return file.is_file() and file.stat().st_size > 0 and not list(file.parent.glob("*.crdownload"))


def test_the_numbers_are_exported(driver, address, tmp_path):
    driver.execute_cdp_cmd("Browser.setDownloadBehavior", {"behavior": "allow", "downloadPath": str(tmp_path)})
    driver.get(f"{address}?{SHORT}&axis=rollouts")
    shown = settled(driver)
    for kind in ("csv", "svg", "png"):
        click(driver, f"#export-{kind}")
        until(lambda kind=kind: whole(tmp_path / f"rftlab-explore.{kind}"), f"the {kind}")
    with (tmp_path / "rftlab-explore.csv").open() as file:
        rows = [row for row in csv.DictReader(file) if (row["curve"], row["seed"]) == ("now", "0")]
    ends = [[float(row["rollouts"]), float(row["test_pass_at_1"])] for row in rows]
    assert [[x, round(y, 4)] for x, y in ends] == shown["now, test, seed 0"] and len(ends) == 21
    assert (tmp_path / "rftlab-explore.png").read_bytes().startswith(b"\x89PNG")
    assert b"</svg>" in (tmp_path / "rftlab-explore.svg").read_bytes()


def test_the_tour_has_three_steps_and_comes_once(driver, address):
    driver.get(address)
    first = "1 of 3: rftlab check says what your own run is"
    until(lambda: text_of(driver, "#tour-text").startswith(first), "the tour")
    pointed = "return [...document.querySelectorAll('.pointed')].map(e => e.className)"
    for step, place in (("2 of 3", "chart-card"), ("3 of 3", "heat-card")):
        click(driver, "#tour-next")
        until(lambda step=step: text_of(driver, "#tour-text").startswith(step), step)
        until(lambda place=place: [place in one for one in driver.execute_script(pointed)] == [True], place)
    click(driver, "#tour-next")
    until(lambda: driver.execute_script("return document.querySelector('#tour-card').offsetParent === null"), "its end")
    driver.get(address)
    settled(driver)
    assert driver.execute_script("return document.querySelector('#tour-card').offsetParent === null")


@pytest.mark.parametrize("dark", ["0", "1"], ids=["light", "dark"])
@pytest.mark.parametrize("width", [1400, 390])
def test_it_fits_and_is_accessible(driver, address, width, dark):
    size = {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": width < 600}
    driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
    driver.get(f"{address}?{SHORT}&dark={dark}&{urlencode({'pin': SHORT, 'name': 'kept'})}")
    settled(driver)
    theme = "return document.body.classList.contains('body--dark')"
    until(lambda: driver.execute_script(theme) == (dark == "1"), "the theme")
    until(lambda: driver.execute_script("return document.documentElement.scrollWidth") == width, "a page that fits")
    wide = "return [...document.querySelectorAll('.scroll')].filter(e => e.scrollWidth > e.clientWidth).length"
    until(lambda: driver.execute_script(wide) == 0, "tables that a telephone shows whole")
    assert Page(driver).unfit(impacts=None) == []
