"""The pilot of a shipped pair, and what is printed of one."""

import io

import pytest
from rich.console import Console

from rftlab.studies.data.results.reference import shipped_runs
from rftlab.studies.forecast.pilot.pilot import pilot_from
from rftlab.studies.forecast.pilot.show import show_pilot
from rftlab.studies.forecast.pilot.store import shipped_base


@pytest.fixture(scope="session")
def pilot():
    return pilot_from(shipped_runs(), shipped_base("tiny-mod97"))


@pytest.fixture(scope="session")
def printed():
    """What `show_pilot` prints of a pilot."""

    def show(pilot):
        console = Console(record=True, width=200, file=io.StringIO())
        show_pilot(console, pilot)
        return console.export_text()

    return show
