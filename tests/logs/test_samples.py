"""Real logs: what the programs themselves wrote. Formats of packages that are not installed are skipped."""

import json
import sys
from pathlib import Path

import pytest

from rftlab.shared.plumbing.errors import UserError
from rftlab.studies.readers import read_logs
from tests.support.logs.formats import said

SAMPLES = Path(__file__).with_name("samples")
TRAIN = {
    (2 * s, "train", metric): value
    for s in range(1, 9)
    for metric, value in (("pass_at_1", 0.2 + 0.05 * s), ("entropy", 0.9 - 0.05 * s), ("kl_ref", 0.001 * s))
}
TEST = {(8, "test", "pass_at_1"): 0.4, (16, "test", "pass_at_1"): 0.6}
STORES = {
    "run-sample.wandb": ("wandb", TRAIN | TEST),
    "events.out.tfevents.1795617517.sample": ("tensorboard", TRAIN),
    "trackio.db": ("json", TRAIN),
}
"""The package that reads each, and what it says."""


@pytest.mark.parametrize("name", STORES)
def test_a_store_says_what_was_logged(name):
    package, truth = STORES[name]
    pytest.importorskip(package, reason=f"{package} is not installed")
    (run,) = read_logs([SAMPLES / name])
    numbers = said([run])
    assert numbers == pytest.approx(truth, rel=1e-6) and not any("damaged" in note for note in run.notes)
    if package == "wandb":
        assert (run.name, run.design.prompts, run.design.rollouts) == ("grpo-seed1", 8, 4)


def test_the_folder_of_wandb_holds_its_runs(tmp_path):
    pytest.importorskip("wandb", reason="wandb is not installed")
    for name in ("run-1-a", "offline-run-2-b"):
        (tmp_path / name).mkdir()
        (tmp_path / name / f"run-{name[-1]}.wandb").write_bytes((SAMPLES / "run-sample.wandb").read_bytes())
    assert [said([run]) for run in read_logs([tmp_path])] == [pytest.approx(TRAIN | TEST, rel=1e-6)] * 2


LOGGERS = [name for name in STORES if name != "trackio.db"]


@pytest.mark.parametrize("name", LOGGERS)
def test_of_a_store_that_is_cut_what_comes_before_is_read(name, tmp_path):
    package, truth = STORES[name]
    pytest.importorskip(package, reason=f"{package} is not installed")
    (tmp_path / name).write_bytes((SAMPLES / name).read_bytes()[: 900 if package == "tensorboard" else 4000])
    (run,) = read_logs([tmp_path / name])
    numbers = said([run])
    assert numbers and set(numbers) < set(truth) and any("cut or damaged" in note for note in run.notes)
    assert all(value == pytest.approx(truth[key], rel=1e-6) for key, value in numbers.items())


@pytest.mark.parametrize("name", LOGGERS)
def test_packages_that_are_missing_are_named(name, monkeypatch):
    for module in ("wandb.proto.wandb_internal_pb2", "tensorboard.backend.event_processing.event_file_loader"):
        monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(UserError, match=f"needs the package {STORES[name][0]}"):
        read_logs([SAMPLES / name])


def test_evaluations_by_checkpoint_are_the_means_of_their_repeats():
    path, names = SAMPLES / "pods_results.excerpt.json", {"pass_at_1": "ans_acc", "format_rate": "for_acc"}
    (run,) = read_logs([path])
    rows, numbers = run.curves[run.curves["split"] == "test"], json.loads(path.read_text())
    assert len(rows) == 27 and set(rows["metric"]) == {*names, "response_length"}
    for row in rows.itertuples():
        values = numbers[f"checkpoint-{row.round}"][row.task][names.get(row.metric, "lengths")]
        assert row.value == pytest.approx(sum(values) / 5)
    assert any("lists of 5 numbers are repeats" in note for note in run.notes)
