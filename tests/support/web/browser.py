"""A browser for pages: Chromium without a window, driven by selenium; tests without one skip, with a reason."""

import json
import os
import shutil
import time
from collections.abc import Callable, Iterator
from importlib.resources import files
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NamedTuple

import pytest

CHROMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome")
DRIVERS = ("chromedriver", "chromium.chromedriver")
PACKAGES = ("selenium", "axe_core_python")
SERIOUS = ("serious", "critical")
PATIENCE = 120
"""Seconds that a page may take on a crowded machine; the explorer's first run in a new cache compiles."""
FLAGS = ("--headless=new", "--disable-gpu", "--hide-scrollbars", "--disable-dev-shm-usage", "--disable-extensions")
HOSTILE = (
    '"><script>document.title = "hit"</script>',
    "'\"` onmouseover=document.title='hit' x=",
    "</script><script>document.title = 'hit'</script>",
    "<img src=x onerror=\"document.title='hit'\">",
    "--></style><svg onload=\"document.title='hit'\">",
    "javascript:document.title='hit'//{{ 7 * 7 }}{% raw %}",
    "\u202eright to left\u2066 and \u05e9\u05dc\u05d5\u05dd",
    "\U0001f600 smile \U0001f469\u200d\U0001f680 & $\\alpha$ &amp;lt;",
    "tab\tnew\nline [red]x[/red] \x1b[31m ]]>",
    "long " * 2000,
)
"""Ten names that a page shows and never obeys; each that runs would change the page's title."""


class Seen(NamedTuple):
    """What a page did while it was open."""

    errors: list[str]
    """Of the console."""
    requests: list[str]
    """Addresses that it asked for, but itself and what it holds."""


def until(happened: Callable[[], Any], what: str) -> Any:
    """Wait until something is true, and return it."""
    end = time.monotonic() + PATIENCE
    while time.monotonic() < end:
        found = happened()
        if found:
            return found
        time.sleep(0.05)
    raise AssertionError(f"nothing came of it: {what}")


def missing(*packages: str) -> str:
    """Why there can be no test with a browser and these packages; "" where there can."""
    absent = [name for name in (*PACKAGES, *packages) if not find_spec(name)]
    if absent:
        return f"needs {' and '.join(absent)}: make test installs them"
    return "" if _found(CHROMES) and _found(DRIVERS) else "needs chromium and chromedriver on the path"


def _found(names: tuple[str, ...]) -> str | None:
    return next((place for name in names if (place := shutil.which(name))), None)


class Page:
    """A page in the browser."""

    def __init__(self, driver: Any):
        self.driver = driver

    def open(self, path: Path, width: int = 1400, theme: str = "light", media: str = "", scripts: bool = True) -> None:
        """Load a file in a window of this width; media "print" is what a printer gets. Without scripts the page's own
        do not run."""
        command = self.driver.execute_cdp_cmd
        screen = {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": False}
        command("Emulation.setDeviceMetricsOverride", screen)
        scheme = {"name": "prefers-color-scheme", "value": theme}
        command("Emulation.setEmulatedMedia", {"media": media, "features": [scheme]})
        command("Emulation.setScriptExecutionDisabled", {"value": not scripts})
        for kind in ("browser", "performance"):
            self.driver.get_log(kind)
        self.driver.get(path.resolve().as_uri())
        # on a crowded machine the driver returns before the page is whole, and before its script has run
        until(lambda: self.run("return document.readyState") == "complete", "the end of loading")

    def run(self, code: str, *arguments: Any) -> Any:
        """What JavaScript returns."""
        return self.driver.execute_script(code, *arguments)

    def all(self, query: str) -> list[Any]:
        """Elements by CSS."""
        return self.driver.find_elements("css selector", query)

    def one(self, query: str) -> Any:
        """The first element of a query."""
        return self.driver.find_element("css selector", query)

    def unfold(self) -> None:
        """Open all that is folded."""
        self.run("document.querySelectorAll('details.fold').forEach(one => { one.open = true; })")

    def shown(self, query: str) -> int:
        """How many elements of a query take room."""
        return self.run(
            "return [...document.querySelectorAll(arguments[0])].filter(e => e.getClientRects().length).length", query
        )

    def seen(self) -> Seen:
        """Errors and requests since the page was opened."""
        errors = [line["message"] for line in self.driver.get_log("browser") if line["level"] in ("SEVERE", "ERROR")]
        events = [json.loads(line["message"])["message"] for line in self.driver.get_log("performance")]
        asked = [e["params"]["request"]["url"] for e in events if e["method"] == "Network.requestWillBeSent"]
        own = self.driver.current_url.partition("#")[0]
        return Seen(errors, [url for url in asked if url.partition("#")[0] != own and not url.startswith("data:")])

    def sound(self) -> None:
        """Nothing is wider than the window, unreachable, obeyed, asked for or wrong, folded or not."""
        wide = "return document.documentElement.scrollWidth - innerWidth"
        assert self.run(wide) <= 0
        self.unfold()
        assert self.run(wide) <= 0 and self.unfit() == []
        assert self.all("img, iframe, object, embed, form[action], [onerror], [onload], [onmouseover]") == []
        assert self.run("return document.scripts.length") <= 1 and self.seen() == ([], [])

    def unfit(self, impacts: tuple[str, ...] | None = SERIOUS) -> list[str]:
        """Violations that axe-core finds serious or worse, or of any of these impacts. Raises AssertionError
        where it looked at next to nothing."""
        self.run(files("axe_core_python").joinpath("axe.min.js").read_text(encoding="utf-8"))
        found = self.driver.execute_async_script(
            "const done = arguments[arguments.length - 1]; axe.run(document, {resultTypes: ['violations']}).then(done)"
        )
        assert len(found["passes"]) > 10
        seen = [one for one in found["violations"] if impacts is None or one["impact"] in impacts]
        return [f"{one['id']}: {[node['html'][:160] for node in one['nodes'][:3]]}" for one in seen]


def start() -> Any:
    """A driver of a browser without a window."""
    from selenium import webdriver
    from selenium.webdriver.chrome.service import Service

    options = webdriver.ChromeOptions()
    options.binary_location = _found(CHROMES) or ""
    for flag in [*FLAGS, *(["--no-sandbox"] if os.geteuid() == 0 else [])]:
        options.add_argument(flag)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
    driver = webdriver.Chrome(options=options, service=Service(_found(DRIVERS)))
    driver.set_script_timeout(PATIENCE)
    return driver


@pytest.fixture(scope="session")
def browser() -> Iterator[Page]:
    """One browser for all tests of a session."""
    if missing():
        pytest.skip(missing())
    driver = start()
    yield Page(driver)
    driver.quit()
