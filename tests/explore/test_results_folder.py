"""What a named results folder adds to the explorer: stored runs, imported runs, calibrations."""

import json
import shutil

import numpy as np
import pytest

from rftlab import Design, UserError, preset
from rftlab.studies.data.runs import store
from rftlab.studies.explore import measures
from rftlab.studies.explore.choices import Choices, chosen_run
from rftlab.studies.explore.copy_as import command_text, python_text, text_as
from rftlab.studies.explore.measures import real_runs, sources_in
from rftlab.studies.forecast.calibrate import calibrated
from rftlab.studies.readers.run import ImportedRun, KnownDesign, MetricSeries
from rftlab.studies.readers.store import write_collection
from tests.support.stores import points, run_all
from tests.support.web.explorer_page import HOSTILE
from tests.support.worlds.planted import planted

DESIGN = Design(8, 4, estimator=preset("paper_text"))


@pytest.fixture
def root(tmp_path):
    """Simulated runs in the place of language models: what is read is the same."""
    folder = store.open_store(tmp_path / "results")
    run_all(folder, points(2))
    (folder / "llm").mkdir()
    shutil.copytree(folder / "sim" / "qwen-gsm8k", folder / "llm" / "tiny-mix97")
    return folder


def test_finished_runs_of_the_design_are_laid_over_and_changed_ones_refused(root):
    assert "llm:tiny-mix97" in sources_in(root)
    (found,) = real_runs("llm:tiny-mix97", "qwen-gsm8k", DESIGN, root)
    assert sorted(int(one.seed[0]) for one in found.seeds) == [0, 1] and found.measured
    assert real_runs("llm:tiny-mix97", "qwen-gsm8k", Design(16, 4, estimator=preset("paper_text")), root) == []
    places = sorted(path for path in (root / "llm" / "tiny-mix97").iterdir() if path.name.startswith("8x4"))
    (places[0] / "done.json").unlink()
    (found,) = real_runs("llm:tiny-mix97", "qwen-gsm8k", DESIGN, root)
    assert len(found.seeds) == 1
    done = places[1] / "done.json"
    done.write_text(json.dumps(json.loads(done.read_text()) | {"seconds": 1e-9}))
    with pytest.raises(UserError, match="cannot be trusted"):
        real_runs("llm:tiny-mix97", "qwen-gsm8k", DESIGN, root)


def test_imported_runs_with_the_same_b_and_k_are_laid_over_whatever_their_names(root):
    rounds = np.array([0, 5, 10])
    piece = MetricSeries("test", "t", "pass_at_1", "acc", rounds, np.array([0.1, 0.2, 0.3]), None, rounds)
    runs = [ImportedRun(f"{name[:40]}{i}", "jsonl", "", (), KnownDesign(8, 4), (piece,), ())
            for i, name in enumerate(HOSTILE)]  # fmt: skip
    write_collection(root, "mine", runs)
    found = real_runs("imported:mine", "qwen-gsm8k", DESIGN, root)
    assert len(found) == len(HOSTILE) and all(one.name.isprintable() for one in found)
    assert found[0].seeds[0].test_pass_at_1.tolist() == [0.1, 0.2, 0.3]
    assert found[0].seeds[0].rollouts.tolist() == [0, 160, 320] and np.isnan(found[0].seeds[0].train_pass_at_1).all()
    assert real_runs("imported:mine", "qwen-gsm8k", Design(16, 4), root) == []


@pytest.fixture
def evidence(monkeypatch):
    found = planted()
    monkeypatch.setattr(measures, "_evidence", lambda root, name: found)
    yield found
    measures._calibrated.clear()


def test_a_finished_calibration_is_a_start_and_its_texts_name_every_number(root, evidence):
    posterior = calibrated(root, "tiny-mix97", evidence, 0, 1, lambda *_: None, lambda _: None)
    assert measures.take_calibrations(root) == []
    choices = Choices("calibrated:tiny-mix97")
    run = chosen_run(choices)
    best = posterior.simulation(int(np.argmax(posterior.weights)))
    assert (run.environment, run.optimizer) == (best.environment, best.optimizer)
    names: dict = {}
    exec(python_text(choices).rpartition("\n")[0], names)
    assert (names["run"].environment, names["run"].design) == (run.environment, run.design)
    assert "--environment.world-seed" in command_text(choices) and "num_generations=8" in text_as("TRL", choices)


def test_a_calibration_that_is_not_finished_is_named_and_left_out(root, evidence):
    (root / "calibrate" / "tiny-mix97").mkdir(parents=True)
    (line,) = measures.take_calibrations(root)
    assert line.startswith("tiny-mix97: not finished") and "calibrated:tiny-mix97" not in measures.start_names()
    with pytest.raises(UserError, match="start = 'calibrated:tiny-mix97' is unknown"):
        Choices("calibrated:tiny-mix97")
