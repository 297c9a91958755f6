"""The tables of docs/lab/diagnose.md: a part of them is made again, and runs that broke are found."""

import pytest

from dev.diagnose_cases import BROKEN, planted, public, score, tiny
from dev.known_formats import format_cases, format_worlds, graded_curve
from dev.known_worlds import chosen, held, simulated, worlds
from dev.planted_tiny import planted_runs, shipped
from rftlab import Design, Simulation, simulate
from rftlab.sim.environments import build
from rftlab.studies.analysis.diagnose import CHECKS, Finding
from rftlab.studies.analysis.diagnose.alarms import ALARM_CHECKS
from rftlab.studies.analysis.diagnose.observed import observe
from tests.support.logs.formats import runs_folder


@pytest.mark.parametrize("settings", [chosen(), worlds(), held()], ids=["chosen", "worlds", "held"])
def test_simulated_runs_of_known_truth(settings):
    """Every sixth setting, one seed: of what is true most is found, of what is not next to nothing is."""
    cases = list(simulated(settings[::6], 1))
    table = score(cases)
    for kind in ("no signal", "evaluation too small"):
        assert table[kind].hits >= 0.75 * table[kind].true, (kind, table[kind])
    checks = [found for kind, found in table.items() if kind not in ALARM_CHECKS]  # rates of alarms are said with them
    assert sum(found.alarms for found in checks) <= 0.03 * sum(found.false for found in checks)


@pytest.mark.parametrize(("graded", "least"), [(True, 1.0), (False, 0.2)])
def test_gains_that_are_the_format_are_found_and_others_are_not(graded, least):
    """Where nothing transfers but the format, and where the format is known from the start; by Pass@1 alone some are
    found, and the log is said not to tell."""
    nothing, _, _, _, _, _, known, *_ = format_worlds()
    cases = list(format_cases([nothing, known], 1, graded))
    found = score(cases)["format only"]
    assert (found.true, found.false, found.alarms) == (8, 4, 0) and found.hits >= least * found.true
    said = (CHECKS["format only"](observe(case.run)) for case in cases)
    texts = [one.what for one in said if isinstance(one, Finding)]
    assert texts and all(("the log does not show it" in text) != graded for text in texts)


def test_the_format_s_part_leaves_training_as_it_is():
    """The truth rests on it: only what is asked of the test set differs."""
    run = Simulation(format_worlds()[1], Design(16, 4, rounds=20, eval_every=10))
    world = build(run.environment)
    log, truth = graded_curve(run, world)
    assert (log["train_pass_at_1"] == simulate(run, world).curve.train_pass_at_1).all()
    assert (log["test_flexible"] >= log["test_pass_at_1"]).all() and truth == {}


def test_small_language_models_give_no_false_alarm():
    cases = list(tiny())
    table = score(cases)
    assert sum(found.alarms for found in table.values()) == 0 and table["collapse"].hits == table["collapse"].true > 0


def test_what_was_planted_in_fresh_runs_is_found():
    cases = list(planted())
    names = [each.name for each in planted_runs()]
    assert [case.run.name for case in cases] == names == list(shipped()["run"].unique())
    table = score(cases)
    assert sum(found.alarms for found in table.values()) == 0
    for kind in ("collapse", "no signal", "sampler and trainer apart", "format only"):
        assert table[kind].hits == table[kind].true >= 2, (kind, table[kind])


@pytest.mark.skipif(runs_folder() is None, reason="needs the public runs, which do not come with the package")
def test_public_runs_that_broke_are_found():
    cases = [case for case in public(runs_folder()) if not case.run.name.startswith("pods")]
    broken = [case for case in cases if case.run.name in BROKEN and case.truth.get("collapse")]
    assert len(broken) == 3 and score(broken)["collapse"].hits == 3
    table = score(cases)
    assert (table["collapse"].alarms, table["no signal"].alarms, table["plateau"].alarms) == (0, 0, 0)
    assert (table["step too large"].hits, table["step too large"].alarms) == (3, 1)
