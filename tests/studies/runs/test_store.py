"""The results store and the runner: nothing half-written, nothing lost, nothing silently wrong."""

import errno
import json
import os
from concurrent.futures import wait
from dataclasses import replace

import numpy as np
import pytest
from rich.console import Console

from rftlab import Optimizer, UserError, preset, simulate
from rftlab.shared.config.surrogate import Cispo, Clip, GeometricMean
from rftlab.shared.plumbing.files import WRITING
from rftlab.studies.cli.execute import study as main_job
from rftlab.studies.data.runs import runner, store
from rftlab.studies.data.runs.about import provenance
from rftlab.studies.data.runs.files import checksummed
from rftlab.studies.data.runs.points import study_points
from rftlab.studies.data.runs.runner import collect, split
from rftlab.studies.data.runs.study import checked_study, read_study, study_path, write_study
from tests.support.stores import DEEP, SMALL, bytes_of, nested, point_of, points, reseal, run_all


def test_a_point_comes_back_as_it_was_written(root):
    point = point_of()
    run_all(root, [point])
    stored, fresh = store.read(root, point), simulate(point.run, runner.build(SMALL))
    assert stored.diverged_at is None
    for name, a, b in zip(fresh.curve._fields, stored.curve, fresh.curve, strict=True):
        assert a.dtype == b.dtype
        if name != "seconds":
            np.testing.assert_array_equal(a, b)
    done = json.loads((store.point_folder(root, point) / "done.json").read_text())
    assert {"commit", "versions", "seconds", "curve_sha256", "diverged_at"} <= set(done)


def test_measures_come_back_beside_the_curve_that_is_the_same_without_them(root):
    plain = point_of()
    full = replace(plain, run=replace(plain.run, evaluation="full"))
    run_all(root, [plain, full])
    stored, fresh = store.read(root, full), simulate(full.run, runner.build(SMALL))
    assert stored.metrics.equals(fresh.metrics) and store.read(root, plain).metrics is None
    for name, a, b in zip(fresh.curve._fields, stored.curve, store.read(root, plain).curve, strict=True):
        assert name == "seconds" or np.array_equal(a, b, equal_nan=True)
    table = store.point_folder(root, full) / "metrics.parquet"
    table.write_bytes(table.read_bytes()[:-1] + b"x")
    with pytest.raises(store.DamagedPoint, match="metrics"):
        store.read(root, full)


def test_identity_covers_every_field_and_the_label_follows_the_configuration():
    point = point_of()
    design = point.run.design
    changes = [{"seed": 1}, {"optimizer": Optimizer(learning_rate=1e-3)}, {"evaluation": "sampled"}]
    changes += [{"environment": replace(SMALL, rho=0.5)}, {"design": replace(design, rounds=6)}]
    # classes whose fields coincide are told apart
    estimators = [replace(preset("grpo"), surrogate=kind(0.2, 0.3)) for kind in (Clip, Cispo, GeometricMean)]
    estimators += [preset("dr_grpo")]
    changes += [{"design": replace(design, estimator=estimator)} for estimator in estimators]
    changed = [replace(point, run=replace(point.run, **change)) for change in changes]
    assert len({p.id.rpartition("-")[2] for p in [point, *changed]}) == 10
    assert changed[-1].id.startswith("8x1-dr_grpo-s0-")
    assert point_of().id == point.id


def test_results_do_not_depend_on_threads_or_on_the_order_of_runs(tmp_path):
    tables = []
    for i, (threads, order) in enumerate(((1, 1), (2, 1), (2, -1))):
        folder = store.open_store(tmp_path / str(i))
        run_all(folder, points()[::order], threads)
        tables.append(bytes_of(collect(folder, points())))
    assert tables[0] == tables[1] == tables[2]


def test_finished_points_are_skipped(root):
    run_all(root, points()[:3])
    finished, todo = split(root, points(), print)
    assert list(finished) == points()[:3] and todo == points()[3:]


def test_of_two_that_finish_the_same_point_the_first_wins(root):
    point = point_of()
    run_all(root, [point])
    first = (store.point_folder(root, point) / "done.json").read_bytes()
    run_all(root, [point])
    assert (store.point_folder(root, point) / "done.json").read_bytes() == first
    store.discard(root, point)
    store.discard(root, point)  # another process removed it first
    assert store.read(root, point) is None and list((root / store.SCRATCH).iterdir()) == []
    with pytest.raises(UserError, match=r"is missing; run the same study again"):
        collect(root, [point])


def test_a_folder_of_somebody_else_is_refused_and_untouched(tmp_path):
    (tmp_path / "thesis.txt").write_text("mine")
    with pytest.raises(UserError, match=r"holds other files and no rftlab.json"):
        store.open_store(tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["thesis.txt"]


@pytest.mark.parametrize("marker", ["", "{", "[]", '{"format": 99}', DEEP, nested(900)], ids=lambda text: text[:9])
def test_a_folder_of_another_format_is_refused_and_one_whose_first_write_was_killed_is_not(root, marker):
    (root / store.MARKER).write_text(marker)
    with pytest.raises(UserError, match=r"rftlab\.json"):
        store.open_store(root)
    with pytest.raises(UserError, match=f"{store.MARKER} cannot be written"):
        store.open_store(root / store.MARKER)  # a file in the place of the folder
    (root / "killed").mkdir()
    (root / "killed" / f"{WRITING}abc").write_text("{")
    assert (store.open_store(root / "killed") / store.MARKER).exists()


@pytest.mark.parametrize(("number", "words"), [(errno.ENOSPC, "the disk is full"), (errno.EACCES, "no permission")])
def test_a_full_disk_or_a_forbidden_write_keeps_what_is_finished(root, monkeypatch, number, words):
    todo = points()
    run_all(root, todo[:2])
    before = bytes_of(collect(root, todo[:2]))

    def fail(handle):
        raise OSError(number, "no")

    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", fail)
        with pytest.raises(UserError, match=f"^{root} cannot be written: {words}; finished runs are kept"):
            run_all(root, todo[2:])
    assert list((root / store.SCRATCH).iterdir()) == []
    assert split(root, todo, print)[1] == todo[2:]
    assert bytes_of(collect(root, todo[:2])) == before


def test_a_diverged_run_is_marked_and_the_others_go_on(root):
    wild = replace(point_of(), run=replace(point_of().run, optimizer=Optimizer("sgd", learning_rate=1e38)))
    todo = [wild, *points(1)]
    run_all(root, todo)
    results = collect(root, todo)
    assert len(results.diverged) == 1 and "not finite after round" in results.diverged[0]
    assert split(root, todo, print)[1] == []
    assert set(results.curves["cell"]) == {point.cell for point in todo}


NO_STUDY = {
    "nothing": ("", "Expecting value"),
    "list": ("[]", "study-sim.json was changed"),
    "unsealed": ('{"level": "sim", "pairs": ["qwen-gsm8k"], "seeds": 3, "rounds": 20}', "study-sim.json was changed"),
    "deep": (DEEP, "nested too deeply"),
    "deep seeds": ({"seeds": json.loads(nested(300))}, "nested too deeply"),
    "seeds": ({"seeds": 2.0}, "seeds; allowed: a whole number"),
    "no seeds": ({"seeds": 0}, "seeds = 0; allowed: 1 or more"),
    "rounds": ({"rounds": "20"}, "rounds; allowed: a whole number or null"),
    "level": ({"level": "foo"}, "level; allowed: sim"),
    "other level": ({"level": "llm", "pairs": ["tiny-mix97"]}, "level; allowed: sim"),
    "pairs": ({"pairs": "qwen-gsm8k"}, "pairs; allowed: a list of names"),
    "pair": ({"pairs": [["qwen-gsm8k"]]}, "pairs; allowed: a list of names"),
    "unknown pair": ({"pairs": ["gpt"]}, "pair = 'gpt' is unknown"),
    "field": ({"colour": "red"}, "unexpected keyword argument 'colour'"),
    "changes": ({"changes": ["environment.kappa"]}, "changes; allowed: values of fields of environment, optimizer"),
    "changed design": ({"changes": {"design.rollouts": 2}}, "changes; allowed: values of fields of environment"),
    "changed text": ({"changes": {"environment.kappa": "5"}}, "environment.kappa = '5'; allowed: as in `rftlab run`"),
    "no field": ({"changes": {"environment.__doc__": ""}}, "environment.__doc__ = ''; allowed: as in `rftlab run`"),
    "changed value": ({"changes": {"environment.kappa": -1.0}}, "environment.kappa = -1.0; allowed: 0 or more"),
}


@pytest.mark.parametrize("kind", NO_STUDY)
def test_a_damaged_study_is_one_line_that_names_its_file(root, kind):
    damage, message = NO_STUDY[kind]
    manifest, study = study_path(root, "sim"), checked_study("sim", ["qwen-gsm8k"], 2, 20)
    write_study(root, study)
    assert read_study(root, "sim") == study
    manifest.write_bytes(damage.encode() if isinstance(damage, str) else checksummed(study._asdict() | damage, "sim"))
    with pytest.raises(UserError, match=r"^\S*study-sim\.json cannot be read \([^\n]*\); run `rftlab repro") as refused:
        read_study(root, "sim")
    assert message in str(refused.value)


def test_a_changed_study_never_mixes_with_another(root):
    """Neither its runs nor its record, and the record of a study that changes nothing has no word of changes."""
    plain = checked_study("sim", ["qwen-gsm8k", "olmo-math"], 1, 20)
    one, other = (plain._replace(changes={"environment.reward_noise": noise}) for noise in (0.5, 1.0))
    assert len({study.folder(root) for study in (plain, one, other)}) == 3 and plain.folder(root) == root
    ids = [{point.id for point in study.points()} for study in (plain, one, other)]
    assert len(ids[0]) == len(ids[0] | ids[1] | ids[2]) / 3
    for point, own in zip(one.points(), plain.points(), strict=True):
        assert replace(point.simulation.environment, reward_noise=0.0) == own.simulation.environment
    write_study(root, plain)
    assert "change" not in study_path(root, "sim").read_text()
    write_study(store.open_store(one.folder(root)), one)
    assert (read_study(root, "sim"), read_study(one.folder(root), "sim")) == (plain, one)


@pytest.mark.parametrize(
    ("level", "threads", "message"), [("llm", 1, "level llm needs torch"), ("sim", -1, "threads = -1")]
)
def test_a_study_that_cannot_run_here_leaves_the_record_of_another_alone(root, level, threads, message, monkeypatch):
    manifest = study_path(root, level)
    manifest.write_text("the study that is finished")
    monkeypatch.setattr("rftlab.studies.data.runs.finish.has_llm", lambda: False)
    with pytest.raises(UserError, match=message):
        main_job.reproduce(Console(quiet=True), checked_study(level, [], 50, None), root, threads, True)
    assert manifest.read_text() == "the study that is finished"


def test_an_interrupt_stops_runs_in_their_middle_and_keeps_the_finished(root, monkeypatch):
    endless = [point_of(seed, rounds=10**9, eval_every=10**9) for seed in range(2)]

    def interrupted(*args, **kwargs):
        ready = wait(*args, **kwargs)
        raise KeyboardInterrupt if len(list(root.glob("sim/*/*/done.json"))) == 1 else RuntimeError(ready)

    monkeypatch.setattr(runner, "wait", interrupted)
    with pytest.raises(KeyboardInterrupt):
        run_all(root, [point_of(), *endless], threads=3)  # the longest come first
    assert split(root, [point_of(), *endless], print)[1] == endless and list((root / store.SCRATCH).iterdir()) == []


def test_what_a_killed_process_left_goes_and_what_others_are_writing_stays(root):
    left, busy, mark = (root / store.SCRATCH / name for name in ("tmpleft", "tmpbusy", "mark"))
    for path in (left, busy):
        path.mkdir()
        (path / "curve.parquet").write_text("half")
    mark.write_text("")
    for path in (left, mark):
        os.utime(path, (0, 0))
    run_all(root, [])
    assert set((root / store.SCRATCH).iterdir()) == {busy, mark}


def test_a_report_tells_where_its_runs_come_from_and_that_it_cannot_be_written(root, monkeypatch):
    todo = points(1)
    run_all(root, todo)
    for point, seconds, version in zip(todo, (1.25, 2.5), ("2.1.0", "2.2.0"), strict=True):
        reseal(root, point, commit="abc", seconds=seconds, versions={"python": "3.12", "numpy": version})
    found = {"commit": "abc", "run time": "3.8 s, the sum over 2 runs", "python": "3.12", "numpy": "2.1.0; 2.2.0"}
    assert provenance(root, todo) == found
    collect(root, todo)
    study = checked_study("sim", ["qwen-gsm8k"], 1, 20)
    (root / "report").write_text("")
    monkeypatch.setattr(main_job, "collect", lambda *asked: pytest.fail("computed"))
    with pytest.raises(UserError, match=f"^{root / 'report'} is a file; allowed: a folder, or nothing of that name"):
        main_job.write_study_report(Console(), study, root, True)


def test_every_shared_cell_runs_once():
    from rftlab.studies.data.paper.experiments import EXPERIMENTS

    planned = study_points(list(EXPERIMENTS.values()), "sim", ["qwen-gsm8k", "olmo-math"], 3, 20)
    assert len(planned) == len({point.id for point in planned}) == 2 * 3 * 25
