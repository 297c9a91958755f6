"""The command line of `rftlab explore`."""

import threading
import webbrowser
from dataclasses import dataclass
from pathlib import Path

import tyro
from rich.console import Console

from rftlab.shared.plumbing.errors import check
from rftlab.studies.console.table import say
from rftlab.studies.data.runs.limits import check_threads

MAX_PORT = 65535


@dataclass(frozen=True)
class Explore:
    """Move the sliders of a design beside its learning curve.

    The page is of this machine alone (127.0.0.1) at an address with a secret, loads nothing from elsewhere, and writes
    nothing. Ctrl-C ends it. Needs the extra `explore`.

        rftlab explore
        rftlab explore results --state 'start=olmo-math&B=256&K=1'
    """

    results: tyro.conf.Positional[Path | None] = None
    """Results folder whose real runs are laid over simulated ones; if left out, those that come with rftlab alone."""
    state: str = ""
    """What the page begins with: the part behind the question mark of a link that it gave."""
    port: int = 0
    """Where it listens; 0 takes a free port."""
    threads: int = 0
    """Threads that simulate; 0 means all cores."""
    browser: bool = True
    """Open the page in the browser; otherwise its address is printed alone."""

    def __post_init__(self):
        check_threads(self.threads)
        check(
            self.port == 0 or 1024 <= self.port <= MAX_PORT,
            f"port = {self.port}; allowed: 0 for any, or 1024 to {MAX_PORT}",
        )

    def execute(self, console: Console) -> int:
        """Serve the page until Ctrl-C."""
        from rftlab.studies.data.runs.store import check_format
        from rftlab.studies.explore.choices import simulation_of
        from rftlab.studies.explore.page.server import check_installed, serve
        from rftlab.studies.explore.scene import from_address
        from rftlab.studies.explore.starts import take_calibrations

        check_installed()
        if self.results is not None:
            check_format(self.results)
            for line in take_calibrations(self.results):
                say(console, f"left out: {line}", "yellow")
        scene = from_address(self.state)
        from rftlab.studies.data.runs.runner import available_threads
        from rftlab.studies.explore.jobs import Bench
        from rftlab.studies.explore.page.page import pages
        from rftlab.studies.explore.page.setting import Setting

        def ready(address: str) -> None:
            whole = f"{address}?{self.state}" if self.state else address
            say(console, f"explore: {whole}")
            console.print("Ctrl-C ends it", style="dim")
            if self.browser:
                webbrowser.open(whole)

        setting = Setting(Bench(self.threads or available_threads()), self.results)
        setting.bench.warm(simulation_of(scene.choices))
        serve(pages(setting), self.port, ready, threading.Event())
        return 0
