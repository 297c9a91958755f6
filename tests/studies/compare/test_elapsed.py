"""The axis of seconds of imported runs: from times so far, from times of rounds, or from nothing."""

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

from rftlab.shared.plumbing.errors import UserError
from rftlab.studies.analysis.imported.ends import measure_ends, shared_places
from rftlab.studies.analysis.imported.figures import curve_numbers
from rftlab.studies.analysis.imported.groups import elapsed_at, source_groups
from rftlab.studies.analysis.imported.page import collection_view
from rftlab.studies.analysis.source import RunSource
from rftlab.studies.readers import ImportedRun, KnownDesign, read_logs
from rftlab.studies.readers.store import write_collection
from tests.support.logs.planted import piece_of
from tests.support.machine.here import refused, shown

TEST = ("test", "pass_at_1")


def run_of(name, tool="", updates=None, **pieces):
    """A run with Pass@1 after rounds 0, 10, 20; pieces: rounds and values of metrics of training."""
    curve = piece_of("test", "pass_at_1", (0, 10, 20), (0.2, 0.4, 0.5), 500)
    more = [piece_of("train", metric, *parts, np.nan) for metric, parts in pieces.items()]
    design = KnownDesign(prompts=8, rollouts=4, updates_per_round=updates)
    return ImportedRun(name, "table", tool, (("x", "0"),), design, (curve, *more))


@pytest.mark.parametrize(
    ("run", "seconds"),
    [
        (run_of("a", elapsed_seconds=((5, 20), (50, 200))), [0, 100, 200]),
        (run_of("a", elapsed_seconds=((0, 20), (30, 230))), [30, 130, 230]),
        (run_of("a", seconds=(range(1, 21), [3.0] * 20)), [0, 30, 60]),
        (run_of("a", seconds=((5, 10, 15, 20), (1, 2, 3, 4))), [0, 15, 50]),  # logged every fifth round
        (run_of("a", "trl", 4, seconds=(range(1, 21), [3.0] * 20)), [0, 120, 240]),  # of an update
        (run_of("a", elapsed_seconds=((5, 20), (50, 200)), seconds=(range(1, 21), [9.0] * 20)), [0, 100, 200]),
        (run_of("a"), [np.nan] * 3),
        (run_of("a", elapsed_seconds=((5, 15), (50, 150))), [0, 100, np.nan]),  # it ends before
        (run_of("a", elapsed_seconds=((5, 10, 20), (50, 40, 200))), [np.nan] * 3),  # it falls
        (run_of("a", seconds=((11, 12, 13, 20), (1, 1, 1, 1))), [np.nan] * 3),  # it begins late
    ],
)
def test_seconds_are_told_or_they_are_not(run, seconds):
    np.testing.assert_allclose(elapsed_at(run, np.array([0, 10, 20])), seconds)


def side(*runs):
    return source_groups(RunSource("imported", "c"), list(runs), TEST)


def timed(name, each, end=0.5, repeats=""):
    """So many seconds a round."""
    run = run_of(name, elapsed_seconds=((20,), (20 * each,)))
    last = piece_of("test", "pass_at_1", (0, 10, 20), (0.2, 0.4, end), 500)
    return replace(run, pieces=(last, *run.pieces[1:]), repeats=repeats)


def test_curves_meet_where_they_have_taken_as_long():
    own = side(timed("fast", 1.0), timed("slow", 4.0, 0.9), run_of("untimed"))
    assert [group.timed for group in own.groups] == [True, True, False] and shared_places([own])[2] == 20
    ends = measure_ends(own, *shared_places([own]))
    assert [one.at_seconds for one in ends] == pytest.approx([0.5, 0.3, np.nan], nan_ok=True)
    numbers = curve_numbers([own], "seconds")
    assert numbers.groupby("design", sort=False)["x"].max().tolist() == [20, 80]
    with pytest.raises(UserError, match="axis = seconds: no log here tells the seconds"):
        collection_view([side(run_of("untimed"))], "seconds")


def test_repeats_at_other_rounds_are_averaged_where_they_took_as_long():
    own = side(timed("r1", 1.0, repeats="r"), timed("r2", 2.0, repeats="r"))
    numbers = curve_numbers([own], "seconds")
    assert numbers["x"].tolist() == [0, 10, 20] and numbers["runs"].unique().tolist() == [2]
    assert numbers["mean"].tolist() == pytest.approx([0.2, (0.4 + 0.3) / 2, (0.5 + 0.4) / 2])


def test_the_long_form_keeps_its_seconds_and_compare_takes_the_axis(tmp_path):
    rows = [(run, r, 0.2 + 0.01 * r, r * each) for run, each in (("a", 2), ("b", 6)) for r in (0, 10, 20)]
    table = pd.DataFrame(rows, columns=["run_id", "round", "value", "seconds"])
    table.assign(split="test", metric="pass_at_1").to_csv(tmp_path / "c.csv", index=False)
    runs = read_logs([tmp_path / "c.csv"])
    assert [elapsed_at(run, np.array([15])).tolist() for run in runs] == [[30], [90]]
    write_collection(tmp_path / "r", "c", runs)
    ask = ("compare", "imported:c#a", "imported:c#b", "--axis", "seconds", "--results", tmp_path / "r")
    assert "at 40 seconds" in shown(*ask)
    (page,) = (tmp_path / "r").glob("compare-*/compare.html")
    assert "at 40 seconds" in page.read_text() and "seconds of training" in page.read_text()
    ends = pd.read_csv(page.parent / "ends.csv")
    assert ends["at_seconds"].tolist() == pytest.approx([0.4, 0.2 + 0.01 * 40 / 6], abs=1e-6)


def test_public_runs_are_a_level(tmp_path):
    allowed = "public:verl_logs has no runs that come with rftlab; allowed: kaip598, pods\n"
    assert refused("report", "public:verl_logs", "--results", tmp_path) == f"rftlab: {allowed}"
    for wrong in ("public:", "public:pods#none"):
        refused("report", wrong, "--results", tmp_path)
    shown("report", "public:pods/gsm8k#pods/gsm8k-n16-*", "--results", tmp_path)
    (page,) = tmp_path.glob("report-*/report.html")
    assert "at 21,600 seconds" in page.read_text()
