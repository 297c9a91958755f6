"""`rftlab status`: what is done, running, interrupted and to do, from the files and locks that are there, without
writing one."""

import fcntl
import os
from contextlib import ExitStack

import pytest
from rich.console import Console

from rftlab.llm.stored import Busy, held, locked
from rftlab.shared.plumbing.errors import UserError
from rftlab.shared.plumbing.files import write_file
from rftlab.studies.cli.execute.status import duration, run_status, seconds_left, show_status
from rftlab.studies.data.runs import store
from rftlab.studies.data.runs.points import RunSpec
from rftlab.studies.data.runs.study import checked_study, write_study
from tests.support.damage import PUT
from tests.support.machine.here import printed
from tests.support.machine.locks import held as locked_elsewhere


@pytest.fixture
def root(tmp_path):
    """A results folder with a study of both levels, of which nothing has run."""
    root = store.open_store(tmp_path / "results")
    for level, pairs in (("sim", ["qwen-gsm8k"]), ("llm", ["tiny-mix97", "tiny-mod97"])):
        write_study(root, checked_study(level, pairs, 1, None))
    return root


def points(level, pair):
    return checked_study(level, [pair], 1, None).points()


def finish(root, point: RunSpec, seconds: float):
    folder = store.point_folder(root, point)
    folder.mkdir(parents=True)
    for table in ("curve", "metrics"):
        (folder / f"{table}.parquet").write_bytes(b"")
    store.mark_done(root, point, None, {"commit": "abc", "versions": {}, "seconds": seconds})


def interrupt(root, point: RunSpec, checkpoint: int | None, curve=True):
    folder = store.point_folder(root, point)
    folder.mkdir(parents=True)
    (folder / "lock").write_bytes(b"")
    if curve:
        (folder / "curve.parquet").write_bytes(b"")
    for name in () if checkpoint is None else (f"{checkpoint - 50:06}", f"{checkpoint:06}", ".writing-abc"):
        (folder / "checkpoints" / name).mkdir(parents=True)
    return folder


@pytest.fixture
def hold():
    """Starts processes that hold the locks of folders."""
    with ExitStack() as stack:
        yield lambda folder: stack.enter_context(locked_elsewhere(folder))


def everything(folder):
    return {path: (path.stat().st_mtime_ns, path.stat().st_size) for path in folder.rglob("*")}


def rows(text):
    """Cells of the tables by pair."""
    names = ("qwen-gsm8k", "tiny-mix97", "tiny-mod97", "all")
    return {words[0]: words[1:] for line in text.splitlines() if (words := line.split()) and words[0] in names}


def test_each_state_is_seen_and_nothing_is_written(root, hold):
    todo = points("llm", "tiny-mix97")
    finish(root, todo[0], 120.0)
    hold(interrupt(root, todo[1], 150))
    interrupt(root, todo[2], 300)
    hold(interrupt(root, todo[3], None))
    interrupt(root, todo[4], None, curve=False)
    before = everything(root)
    found = [run_status(root, point) for point in todo]
    states = [("done", None), ("running", 150), ("interrupted", 300), ("running", 0), ("interrupted", None)]
    assert [(run.state, run.round) for run in found[:6]] == [*states, ("to do", None)]
    text = printed(show_status, root)
    assert everything(root) == before
    left = seconds_left(found)
    assert rows(text)["tiny-mix97"] == ["1", "2", "2", str(len(todo) - 5), *duration(left).split()]
    assert rows(text)["tiny-mod97"] == ["0", "0", "0", str(len(todo)), "unknown"] and rows(text)["all"][-1] == "unknown"
    assert f"running: {todo[1].name}, round 150 of 600" in text
    assert f"interrupted: {todo[4].name}, round unknown of 600" in text


def test_time_left_is_that_of_finished_runs_in_proportion_to_their_cost(root, hold):
    todo = points("llm", "tiny-mix97")
    finish(root, todo[0], 3 * todo[0].cost)
    hold(interrupt(root, todo[1], 150))
    hold(interrupt(root, todo[2], 450))
    found = [run_status(root, point) for point in todo]
    left = 3 * (0.75 * todo[1].cost + 0.25 * todo[2].cost + sum(point.cost for point in todo[3:]))
    assert seconds_left(found) == pytest.approx(left)
    assert seconds_left(found, 2) == pytest.approx(left / 2)
    first, second = 3 * 0.75 * todo[1].cost, 3 * 0.25 * todo[2].cost
    assert seconds_left(found[:3], 2) == pytest.approx(max(first, (first + second) / 2))


def test_simulations_are_done_or_to_do_and_what_is_not_known_is_not_guessed(root):
    todo = points("sim", "qwen-gsm8k")
    for point in todo[:2]:
        finish(root, point, 2.0)
    assert rows(printed(show_status, root))["qwen-gsm8k"][:4] == ["2", "0", "0", str(len(todo) - 2)]
    found = [run_status(root, point) for point in todo]
    assert seconds_left(found[:2]) == 0.0 and "unknown, no language model is running" in printed(show_status, root)
    todo = points("llm", "tiny-mix97")
    found = [run_status(root, point) for point in todo]
    assert seconds_left(found) is None and seconds_left(found, 2) is None
    finish(root, todo[0], 60.0)
    for damaged in ("{}", "[" * 100_000, '{"seconds": NaN}', '{"seconds": -1}', '{"seconds": 1%s}' % ("0" * 400)):
        (store.point_folder(root, todo[0]) / "done.json").write_text(damaged)
        found = [run_status(root, point) for point in todo]
        assert (found[0].state, seconds_left(found)) == ("interrupted", None)
        assert str(store.point_folder(root, todo[0])) in found[0].damage


def test_a_look_takes_no_lock_away_and_a_start_beside_it_is_not_refused(tmp_path, monkeypatch):
    folder = tmp_path / "run"
    assert not held(folder) and not folder.exists()
    with locked(folder, print):
        assert held(folder)
        with pytest.raises(Busy), locked(folder, print):
            pass
    assert not held(folder)
    glance = (folder / "lock").open("rb")
    fcntl.flock(glance, fcntl.LOCK_SH)
    monkeypatch.setattr("rftlab.llm.stored.time.sleep", lambda seconds: glance.close())
    with locked(folder, print):
        assert held(folder)


@pytest.mark.parametrize(
    ("seconds", "words"),
    [(None, "unknown"), (0.0, "0 s"), (59.4, "59 s"), (61, "1 min"), (3599, "1 h 0 min"), (9000, "2 h 30 min")],
)
def test_durations(seconds, words):
    assert duration(seconds) == words


def test_a_folder_without_a_study_is_one_line_that_says_how_many_runs_it_has(tmp_path):
    root = store.open_store(tmp_path / "results")
    with pytest.raises(UserError, match="holds no study; `rftlab reproduce --results"):
        show_status(Console(), root)
    for name in ("a/config.json", "a/done.json", "b/config.json"):
        write_file(root / "llm" / "tiny-mix97" / name, b"{}")
    with pytest.raises(UserError, match=r"holds no study; .* Runs that are finished: 1 of 2 at level llm$"):
        show_status(Console(), root)
    with pytest.raises(UserError, match=r"nothing is not a results folder of rftlab \(no readable rftlab.json"):
        show_status(Console(), tmp_path / "nothing")
    assert not (tmp_path / "nothing").exists()


@pytest.mark.parametrize(
    "place",
    ["sim/qwen-gsm8k/point", "llm/tiny-mix97/point", "llm/tiny-mix97/point/done.json", "llm/tiny-mix97/point/lock"],
)
@pytest.mark.parametrize("kind", ["a file", "a pipe", "a symbolic link", "a dangling link"])
def test_what_lies_in_the_place_of_a_run_is_no_run(root, kind, place, tmp_path):
    level, pair, _, *rest = place.split("/")
    todo = points(level, pair)
    finish(root, todo[0], 5.0)
    folder = store.point_folder(root, todo[0])
    os.rename(folder, tmp_path / "elsewhere")
    if rest == ["lock"]:
        interrupt(root, todo[0], 100)
        (folder / "lock").unlink()
    elif rest:
        folder.mkdir()
    target = folder.joinpath(*rest)
    PUT[kind](target, (tmp_path / "elsewhere").joinpath(*rest))
    found = run_status(root, todo[0])
    assert found.state == ("interrupted" if rest else "to do") and found.seconds is None
    if rest != ["lock"]:
        said = f"damaged, `rftlab reproduce` redoes it: {found.damage}"
        assert str(folder) in found.damage and said in printed(show_status, root)


@pytest.mark.parametrize("place", ["sim", "sim/qwen-gsm8k"])
def test_a_folder_of_runs_that_is_none_is_named(root, place):
    (root / place).parent.mkdir(exist_ok=True)
    os.mkfifo(root / place)
    with pytest.raises(UserError, match=f"^{root / place} is a pipe; allowed: a folder"):
        show_status(Console(quiet=True), root)


def test_runs_behind_links_are_not_counted(tmp_path):
    root = store.open_store(tmp_path / "results")
    for name in ("config.json", "done.json"):
        write_file(tmp_path / "outside" / "a" / "b" / name, b"{}")
        write_file(root / "sim" / "qwen-gsm8k" / "x" / name, b"{}")
    (root / "llm").symlink_to(tmp_path / "outside")
    (root / "sim" / "linked").symlink_to(tmp_path / "outside" / "a")
    with pytest.raises(UserError, match=r"Runs that are finished: 1 of 1 at level sim$"):
        show_status(Console(), root)
