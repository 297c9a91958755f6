"""Whatever is done to a file of a results folder: it is named, redone, or refused in one line. Never a traceback, a
hang, another number, a touch outside."""

import io
import json
import shutil
from concurrent.futures import ThreadPoolExecutor
from functools import partial

import numpy as np
import pandas as pd
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from rich.console import Console

from rftlab import Curve, UserError
from rftlab.llm.probe_config import ProbeConfig
from rftlab.shared.plumbing.files import write_file
from rftlab.studies.analysis.compare import compare, levels
from rftlab.studies.analysis.public import show
from rftlab.studies.analysis.source import curve_sets
from rftlab.studies.cli.execute import status
from rftlab.studies.cli.execute import study as main_job
from rftlab.studies.data.paper.experiments import EXPERIMENTS
from rftlab.studies.data.results.reference import shipped_runs
from rftlab.studies.data.runs import finish, runner, store
from rftlab.studies.data.runs.study import Study, read_study
from rftlab.studies.forecast.calibrate import calibrated
from rftlab.studies.forecast.forecast import find_pilot
from rftlab.studies.forecast.pilot import run as pilot_run
from rftlab.studies.forecast.pilot import store as pilot_store
from rftlab.studies.forecast.pilot.pilot import PILOT_CELLS, pilot_from
from rftlab.studies.report import report
from tests.support.damage import KINDS, content, hurt, no_hang, old_files, places
from tests.support.worlds.planted import planted

SIM, LLM = "qwen-gsm8k", "tiny-mix97"
STUDIES = {"sim": Study("sim", [SIM], 1, 2), "llm": Study("llm", [LLM], 1, 2)}
FEW = {name: EXPERIMENTS[name] for name in ("baseline", "advantage")}
WANTED = pilot_run.wanted(LLM, PILOT_CELLS, None, ProbeConfig())
EVIDENCE = planted()
SILENT = Console(quiet=True)


def patched(patch):
    """Two designs for the seven experiments, no drawing, no theory, no public runs, and stand-ins for what needs
    torch."""

    def draw_all(folder, plans, progress):
        write_file(folder / "figure.svg", b"<svg/>")
        return dict.fromkeys(plans, "")

    for module in (main_job, levels):
        patch.setattr(module, "EXPERIMENTS", FEW)
    for module in (report, compare):
        patch.setattr(module, "draw_all", draw_all)
    patch.setattr(compare, "compared", partial(compare.compared, draws=20))
    patch.setattr(main_job, "_theory", lambda *asked: ("", ""))
    patch.setattr(show, "public_section", lambda figures: "")
    patch.setattr(main_job, "ProcessPoolExecutor", lambda processes, context: ThreadPoolExecutor(processes))
    patch.setattr(finish, "has_llm", lambda: True)
    patch.setattr(finish, "run_llm_points", lambda root, todo, *told: [trained(root, point) for point in todo])
    patch.setattr(pilot_run, "has_llm", lambda: True)
    patch.setattr(pilot_run, "in_a_process", lambda *asked: None)
    patch.setattr(pilot_run, "base_from", lambda pair, found, temperature: pilot_store.shipped_base(pair))
    patch.setattr(pilot_run, "_curves", lambda *asked: shipped_runs())


def trained(root, point):
    """What the trainer leaves of a run."""
    folder, rng = store.point_folder(root, point), np.random.default_rng(len(point.id) + point.run.seed)
    rounds, batch = np.arange(3), point.run.design.round_rollouts
    whole = {"seed": np.full(3, point.run.seed), "round": rounds}
    whole |= {"rollouts": batch * rounds, "tokens": 5 * batch * rounds}
    curve = {name: whole.get(name, rng.uniform(size=3)) for name in Curve._fields}
    metrics = {name: whole[name] for name in ("seed", "round")} | {"length": rng.uniform(size=3)}
    rollouts = {"round": np.repeat([1, 2], 16), "prompt": np.tile(np.arange(4), 8)}
    rollouts |= {"strict": rng.integers(2, size=32) * 1.0}
    tables = {"curve": curve, "metrics": metrics, "rollouts/000001-000002": rollouts}
    for name, table in tables.items():
        data = io.BytesIO()
        pd.DataFrame(table).to_parquet(data)
        write_file(folder / f"{name}.parquet", data.getvalue())
    write_file(folder / "config.json", json.dumps(point.config).encode())
    write_file(folder / "checkpoints" / "000002" / "state.json", b"{}")
    store.mark_done(root, point, None, {"commit": "abc", "versions": {"python": "3"}, "seconds": 1.5})


def report_of(console, root, level):
    main_job.write_study_report(console, read_study(root, level), root, True)
    return tables_of(main_job.report_folder(root, level))


def reproduce_all(console, root, level):
    main_job.reproduce(console, STUDIES[level], root, 1, True)
    return tables_of(main_job.report_folder(root, level))


def run(console, root, level):
    points = STUDIES[level].points()
    finish.finish_points(console, store.open_store(root), points, 1, True)
    return runner.collect(root, points).curves.drop(columns="seconds").to_csv()


def tables_of(folder):
    return {path.name: path.read_bytes() for path in sorted(folder.glob("*.csv"))}


def compare_levels(console, root):
    asked = curve_sets([f"sim:{SIM}", f"llm:{LLM}"])
    curves = levels.load_levels(console, asked, store.open_store(root), True)
    return tables_of(compare.write_comparison(console, curves, root, "rounds", 0, True).parent)


def calibrate_again(console, root):
    return calibrated(root, LLM, EVIDENCE, 0, 1, lambda *done: None, console.print).draws.tolist()


COMMANDS = {
    "status": (status.show_status, ("", "sim", "llm", "study")),
    "report": (partial(report_of, level="sim"), ("", "sim", "study-sim", "report/", ".scratch", "rftlab")),
    "report llm": (partial(report_of, level="llm"), ("", "llm", "study-llm", "report-llm")),
    "reproduce": (partial(reproduce_all, level="sim"), ("", "sim", "study-sim", "report/", ".scratch", "rftlab")),
    "reproduce llm": (partial(reproduce_all, level="llm"), ("", "llm", "study-llm", "report-llm")),
    "run": (partial(run, level="sim"), ("", "sim", ".scratch")),
    "run llm": (partial(run, level="llm"), ("", "llm")),
    "compare": (compare_levels, ("", "sim", "llm", "study", "compare")),
    "pilot": (lambda console, root: repr(pilot_run.pilot(console, WANTED, root, 1, True)), ("pilot", "rftlab")),
    "predict": (lambda console, root: repr(find_pilot(store.open_store(root), LLM)), ("pilot",)),
    "calibrate": (calibrate_again, ("calibrate",)),
}
"""What a command does, and where the files begin that it reads or writes."""
HEALS = ("reproduce", "reproduce llm", "run", "run llm", "pilot", "calibrate")


@pytest.fixture(scope="session")
def whole(tmp_path_factory):
    """An undamaged results folder with everything in it, and what each command gives."""
    root = store.open_store(tmp_path_factory.mktemp("whole") / "results")
    with pytest.MonkeyPatch.context() as patch:
        patched(patch)
        for level in STUDIES:
            main_job.reproduce(SILENT, STUDIES[level], root, 1, True)
        base, place = pilot_store.shipped_base(LLM), pilot_store.pilot_path
        known = pilot_from(shipped_runs(), base, PILOT_CELLS)
        pilot_store.write_measurements(place(root, LLM), known, WANTED.config())
        pilot_store.write_measurements(place(root, LLM, "base"), base, WANTED.base_config())
        for seed in (0, 1):
            calibrated(root, LLM, EVIDENCE, seed, 1, lambda *done: None, pytest.fail)
        expected = {name: command(Console(file=io.StringIO()), root) for name, (command, _) in COMMANDS.items()}
    return root, expected


def run_command(name, root):
    """What a command gives, prints, and the one line with which it ends instead."""
    console = Console(file=io.StringIO(), width=200)
    try:
        return COMMANDS[name][0](console, root), console.file.getvalue(), None
    except UserError as error:
        return None, console.file.getvalue(), str(error)
    except OSError as error:  # the command line makes it one line, with the file's name
        return None, console.file.getvalue(), f"{error.filename}: {error.strerror}"


NUMBER = st.integers(0, 10**6)
DAMAGE = st.tuples(st.sampled_from(sorted(COMMANDS)), st.sampled_from(KINDS), NUMBER, NUMBER, NUMBER)


def check(whole, folder, name, kind, number, at, beside):
    """Damage a copy of the folder and run a command on it."""
    (whole_root, expected), hurt_root, outside = whole, folder / "results", folder / "outside"
    shutil.copytree(whole_root, hurt_root)
    outside.mkdir()
    old_files(outside)
    mine = [place for place in places(hurt_root) if place.startswith(COMMANDS[name][1])]
    place, other = mine[at % len(mine)], mine[beside % len(mine)]
    hurt(hurt_root, outside, place, other, kind, number)
    before = content(outside)
    with no_hang():
        found, printed, line = run_command(name, hurt_root)
    assert content(outside) == before, "a file outside was touched"
    if line is not None:
        assert "\n" not in line and str(hurt_root) in line
    elif name != "status" and found != expected[name]:
        says = name not in HEALS and ("damaged" in printed or "left out" in printed)
        assert says, "another number"
    if name in HEALS and line is None:
        again, _, line = run_command(name, hurt_root)
        healed = again == expected[name] and line is None
        assert healed, "it does not heal"


@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(case=DAMAGE)
def test_damage_is_named_redone_or_refused(whole, tmp_path_factory, case):
    folder = tmp_path_factory.mktemp("damage")
    with pytest.MonkeyPatch.context() as patch:
        patched(patch)
        check(whole, folder, *case)
    shutil.rmtree(folder)
