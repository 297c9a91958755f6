"""The explorer in a real browser."""

import signal
import time
from urllib.error import HTTPError
from urllib.parse import urlsplit
from urllib.request import Request, urlopen

import pytest

from tests.support.browser import chromium, explorer, missing, requested, series, settled, text_of, until

pytestmark = pytest.mark.skipif(bool(missing()), reason=missing())
SHORT = "B=8&K=4&rounds=200"


@pytest.fixture(scope="module")
def address():
    with explorer() as (found, _):
        yield found


@pytest.fixture(scope="module")
def driver():
    with chromium(1400) as found:
        yield found


def press(driver, place, *keys):
    """Put the focus on an element and press keys."""
    from selenium.webdriver.common.by import By

    driver.find_element(By.CSS_SELECTOR, place).send_keys(*keys)


def test_the_page_loads_and_a_slider_moves_the_curve(driver, address):
    from selenium.webdriver.common.keys import Keys

    driver.get(f"{address}?{SHORT}")
    first = settled(driver)
    assert [len(points) for name, points in first.items() if name.startswith("now")] == [21] * 5
    press(driver, "#knob-B", Keys.ARROW_RIGHT, Keys.ARROW_RIGHT)
    until(lambda: "B=32" in driver.execute_script("return document.querySelector('#link').href"), "the link")
    second = settled(driver)
    assert len(second["now, test"]) == 21 and second["now, test"] != first["now, test"]
    assert second["now, test"][0] == first["now, test"][0]  # the base policy is the same
    assert [entry for entry in driver.get_log("browser") if entry["level"] == "SEVERE"] == []
    place = urlsplit(address)
    strange = {found for found in requested(driver) if urlsplit(found)[1] != place.netloc}
    assert strange == set()


def test_ctrl_c_ends_it_at_once():
    with explorer() as (_, process):
        began = time.monotonic()
        process.send_signal(signal.SIGINT)
        process.wait(timeout=20)
        assert process.returncode == 130 and time.monotonic() - began < 20


def answered(address, **headers):
    try:
        with urlopen(Request(address, headers=headers), timeout=30) as found:
            return found.status, dict(found.headers)
    except HTTPError as error:
        return error.code, {}


def test_strangers_are_refused(address):
    place = urlsplit(address)
    root = f"http://{place.netloc}"
    status, headers = answered(address)
    assert status == 200 and "default-src 'self'" in headers["content-security-policy"]
    assert answered(f"{root}/")[0] == 404 and answered(f"{root}/{'x' * 22}/")[0] == 404
    assert answered(address, Host="evil.example")[0] == 403
    assert answered(address, Origin="http://evil.example")[0] == 403


def test_an_address_that_means_nothing_is_said_on_the_page(driver, address):
    driver.get(f"{address}?B=0&estimator=%3Cscript%3E")
    until(lambda: "is unknown; allowed" in text_of(driver, "#error"), "a line that says what is wrong")
    assert series(driver) is not None
