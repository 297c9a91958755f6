"""The tables of docs/diagnose.md: a part of them is made again, and public runs that broke are found."""

import pytest

from rftlab.studies.tools.diagnose_cases import BROKEN, chosen, public, score, simulated, tiny, worlds
from tests.support.logs import runs_folder


@pytest.mark.parametrize("settings", [chosen(), worlds()], ids=["chosen", "worlds"])
def test_simulated_runs_of_known_truth(settings):
    """Every sixth setting, one seed: of what is true most is found, of what is not next to nothing is."""
    table = score(list(simulated(settings[::6], 1)))
    for kind in ("no signal", "evaluation too small"):
        assert table[kind].true > 1 and table[kind].hits >= 0.75 * table[kind].true, (kind, table[kind])
    assert sum(found.alarms for found in table.values()) <= 0.03 * sum(found.false for found in table.values())
    assert table["step too large"].hits >= 0.4 * table["step too large"].true > 0


def test_a_truth_turned_round_is_scored_so():
    cases = list(simulated(chosen()[:1], 1))
    turned = [case._replace(truth={kind: not true for kind, true in case.truth.items()}) for case in cases]
    for kind, found in score(cases).items():
        other = score(turned)[kind]
        assert (other.hits, other.true, other.alarms, other.false) == (
            found.alarms,
            found.false,
            found.hits,
            found.true,
        )


def test_small_language_models_give_no_false_alarm():
    table = score(list(tiny()))
    assert sum(found.alarms for found in table.values()) == 0 and table["collapse"].hits == table["collapse"].true > 0


@pytest.mark.skipif(runs_folder() is None, reason="needs the public runs, which do not come with the package")
def test_public_runs_that_broke_are_found():
    cases = [case for case in public(runs_folder()) if not case.run.name.startswith("pods")]
    broken = [case for case in cases if case.run.name in BROKEN and case.truth.get("collapse")]
    assert len(broken) == 3 and score(broken)["collapse"].hits == 3
    table = score(cases)
    assert (table["collapse"].alarms, table["no signal"].alarms, table["plateau"].alarms) == (0, 0, 0)
    assert (table["step too large"].hits, table["step too large"].alarms) == (3, 1)
