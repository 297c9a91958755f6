"""The pilot of a shipped pair."""

import pytest

from rftlab.studies.data.results.reference import shipped_runs
from rftlab.studies.forecast.pilot.pilot import pilot_from
from rftlab.studies.forecast.pilot.store import shipped_base


@pytest.fixture(scope="session")
def pilot():
    return pilot_from(shipped_runs(), shipped_base("tiny-mod97"))
