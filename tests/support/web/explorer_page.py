"""The explorer in a real browser: a server in a process of its own, and Chromium without a screen."""

import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from tests.support.machine.processes import hear_interrupts
from tests.support.web.browser import start, until

HOSTILE = (
    "<script>alert(1)</script>", "\"'><img src=x onerror=alert(1)>", "{{constructor.constructor('alert(1)')()}}",
    "javascript:alert(1)", "\u202egpj.exe", "👩‍🔬🔥", "a" * 10_000, "&amp;&pin=B%3D1&name=x", "\x00\x1b[2J\r\n\t",
    "${7*7} %s %n ../../etc/passwd",
)  # fmt: skip
"""Names that somebody might give a curve."""
SERIES = """
    const chart = document.querySelector(arguments[0]);
    if (!chart || !window.getElement) return [];
    const found = getElement(Number(chart.id.slice(1)));
    return found && found.chart ? found.chart.getOption().series.map(s => ({name: s.name, data: s.data})) : [];
"""


@contextmanager
def explorer(*arguments: str) -> Iterator[tuple[str, subprocess.Popen]]:
    """A running `rftlab explore`: its address, and its process."""
    command = [sys.executable, "-m", "rftlab.studies.cli.main", "explore", "--no-browser", "--threads", "2", *arguments]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, preexec_fn=hear_interrupts)
    assert process.stdout is not None
    try:
        line = process.stdout.readline()
        assert line.startswith("explore: http://127.0.0.1:"), line
        yield line.split()[1], process
    finally:
        process.kill()
        process.wait()
        process.stdout.close()


@contextmanager
def chromium(width: int, height: int = 1000) -> Iterator[Any]:
    """A browser with a window of that size, which keeps its console and a list of its requests."""
    driver = start()
    try:
        size = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": width < 600}
        driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
        yield driver
    finally:
        driver.quit()


def series(driver, place: str = ".chart") -> dict[str, list]:
    """What a chart shows: points by the name of their line."""
    return {line["name"]: line["data"] for line in driver.execute_script(SERIES, place)}


def text_of(driver, place: str) -> str:
    """The text of an element; "" where it is not there."""
    found = driver.execute_script("return document.querySelector(arguments[0])?.textContent", place)
    return found or ""


def settled(driver) -> dict[str, list]:
    """The chart of curves once all rounds are run."""

    def whole():
        """The chart may be a message behind the words."""
        lines = series(driver) if "done" in text_of(driver, "#status") else {}
        return lines if len({len(points) for name, points in lines.items() if name.startswith("now")}) == 1 else None

    return until(whole, "the end of a simulation")


def requested(driver) -> set[str]:
    """Addresses of all requests since the last question, what the browser asks for itself left out."""
    found = set()
    for entry in driver.get_log("performance"):
        message = json.loads(entry["message"])["message"]
        if message["method"] in ("Network.requestWillBeSent", "Network.webSocketCreated"):
            params = message["params"]
            found.add(params["url"] if "url" in params else params["request"]["url"])
    return {address for address in found if not address.startswith(("data:", "blob:", "chrome:"))}
