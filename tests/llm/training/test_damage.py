"""A run's folder into which others wrote, or which a run that was refused left: no link is followed, what is damaged is
named, the curve is that of a run that was left alone, and a folder without rounds is free for the corrected command."""

import json
import os
import re
import shutil
from dataclasses import replace

import pytest

import rftlab.llm.training.trainer
from rftlab import Compute, Model, UserError
from rftlab.llm.train import TrainingCallbacks, train
from rftlab.shared.plumbing.files import write_folder
from rftlab.shared.plumbing.folders import entries
from tests.support.damage import content, no_hang, old_files
from tests.support.trainer.tiny_runs import killed_at, one_cache, run_of, same  # noqa: F401

RUN = {"rounds": 8, "replay_window": 4}


@pytest.fixture
def outside(tmp_path):
    folder = tmp_path / "outside"
    folder.mkdir()
    old_files(folder)
    return folder


@pytest.fixture
def half(tmp_path):
    """A run that was killed after its first checkpoint."""
    killed_at(run_of(**RUN), tmp_path / "run", 5)
    return tmp_path / "run"


IN_PLACE = {
    "link": lambda place, outside: place.symlink_to(outside),
    "link to a file": lambda place, outside: place.symlink_to(outside / "config.json"),
    "dangling link": lambda place, outside: place.symlink_to("nowhere"),
    "pipe": lambda place, outside: os.mkfifo(place),
}


@pytest.mark.parametrize("name", ["rollouts", "checkpoints", "lock", "config.json"])
@pytest.mark.parametrize("kind", IN_PLACE)
def test_what_is_no_folder_or_file_is_refused_by_name(half, outside, kind, name):
    place, before = half / name, content(outside)
    shutil.rmtree(place) if place.is_dir() else place.unlink()
    IN_PLACE[kind](place, outside)
    with no_hang(), pytest.raises(UserError, match=f"^{place} "):
        train(run_of(**RUN), half)
    assert content(outside) == before


@pytest.mark.parametrize("kind", IN_PLACE)
def test_a_table_that_is_a_link_or_a_pipe_is_written_anew(half, outside, kind):
    before, whole = content(outside), train(run_of(**RUN), half.with_name("whole"))
    for name in ("curve.parquet", "metrics.parquet"):
        (half / name).unlink()
        IN_PLACE[kind](half / name, outside)
    with no_hang():
        assert same(whole, train(run_of(**RUN), half))
    assert (half / "curve.parquet").is_file()
    assert not (half / "curve.parquet").is_symlink()
    assert content(outside) == before


@pytest.mark.parametrize("text", ["", "half of", "[]", "3", "{}", '{"level": "llm"}', "[" * 100_000])
def test_a_damaged_configuration_beside_a_checkpoint_is_written_again(half, text):
    whole, before = train(run_of(**RUN), half.with_name("whole")), (half / "config.json").read_bytes()
    remarks, rounds = [], []
    (half / "config.json").write_text(text)
    assert same(whole, train(run_of(**RUN), half, TrainingCallbacks(remark=remarks.append, rounds=rounds.append)))
    assert rounds == [5, 6, 7, 8]
    assert f"damaged, written again: {half / 'config.json'}" in remarks
    assert (half / "config.json").read_bytes() == before


def test_a_damaged_configuration_says_nothing_of_another_run(half):
    """Whose rounds are there says the checkpoint; and without one a line says what to do."""
    (half / "config.json").write_text("half of")
    for run in (run_of(**RUN, seed=1), run_of(**RUN)):
        with pytest.raises(UserError, match=r"config\.json cannot be read: .*; remove it, or name another folder$"):
            train(run, half)
        shutil.rmtree(half / "checkpoints", ignore_errors=True)
    assert (half / "config.json").read_text() == "half of"


def changed_state(place, text):
    files = {path.name: path.read_bytes() for path in place.iterdir() if path.name != "checksums.json"}
    shutil.rmtree(place)
    write_folder(place, files | {"state.json": text})


def half_of(name):
    return lambda last, outside: os.truncate(last / name, (last / name).stat().st_size // 2)


FILES = ("model.safetensors", "optimizer.safetensors", "arrays.safetensors", "state.json", "checksums.json")
LAST = {f"half of {name}": half_of(name) for name in FILES} | {
    "checksums of nothing": lambda last, outside: (last / "checksums.json").write_text("{}"),
    "deep checksums": lambda last, outside: (last / "checksums.json").write_text("[" * 100_000),
    "no model": lambda last, outside: [(last / name).unlink() for name in ("model.safetensors", "checksums.json")],
    "deep state": lambda last, outside: changed_state(last, b"[" * 100_000),
    "empty state": lambda last, outside: changed_state(last, b"{}"),
    "of an earlier round": lambda last, outside: (shutil.rmtree(last), shutil.copytree(last.with_name("000004"), last)),
    "link outside": lambda last, outside: (os.rename(last, outside / "moved"), last.symlink_to(outside / "moved")),
    "a file": lambda last, outside: (shutil.rmtree(last), last.touch()),
    "linked weights": lambda last, outside: (
        os.rename(last / "model.safetensors", outside / "weights"),
        (last / "model.safetensors").symlink_to(outside / "weights"),
    ),
    "piped weights": lambda last, outside: (os.remove(last / FILES[0]), os.mkfifo(last / FILES[0])),
}


@pytest.mark.parametrize("kind", LAST)
def test_a_damaged_checkpoint_is_not_taken(tmp_path, outside, kind):
    """Of a finished run: the rounds after the checkpoint before it are trained again."""
    whole = train(run_of(**RUN), tmp_path / "run")
    LAST[kind](tmp_path / "run" / "checkpoints" / "000008", outside)
    before, rounds, remarks = content(outside), [], []
    with no_hang():
        told = TrainingCallbacks(remark=remarks.append, rounds=rounds.append)
        assert same(whole, train(run_of(**RUN), tmp_path / "run", told))
    assert rounds == [5, 6, 7, 8] and content(outside) == before
    silent = kind in ("link outside", "a file")
    assert ["damaged, the checkpoint before it is used: " in remark for remark in remarks] == [True] * (not silent)


def test_only_plain_numbers_are_checkpoints(half, outside):
    for name in ("1²", "٩", "-5", "9"):
        (half / "checkpoints" / name).symlink_to(outside)
    (half / "checkpoints" / "7²").mkdir()
    before, rounds = content(outside), []
    train(run_of(**RUN), half, TrainingCallbacks(rounds=rounds.append))
    assert rounds == [5, 6, 7, 8]
    assert content(outside) == before
    assert (half / "checkpoints" / "7²") in entries(half / "checkpoints")


FOUR = run_of(rounds=4)
REFUSED = {
    "device": ({"compute": Compute(device="cuda:99")}, "compute.device = 'cuda:99': "),
    "batch": ({"design": replace(FOUR.design, batch_size=31)}, "batch_size = 31 is larger than the training set"),
    "adapters": ({"lora": replace(FOUR.lora, rank=4, targets=("nope",))}, "lora."),
    "prompts": ({"model": replace(FOUR.model, max_prompt_length=3)}, "limit = 3 tokens; each of the 30 prompts is"),
    "responses": (
        {"model": replace(FOUR.model, max_response_length=4000)},
        "max_response_length = 4016; allowed: at most",
    ),
    "model": ({"model": Model("/no/such/model"), "task": replace(FOUR.task, name="words")}, "/no/such/model"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_the_corrected_command_may_have_the_folder(name, tmp_path):
    change, message = REFUSED[name]
    with pytest.raises(UserError, match=re.escape(message)):
        train(replace(FOUR, **change), tmp_path / "run")
    assert not list(tmp_path.rglob("*.parquet")) and not (tmp_path / "run" / "checkpoints").exists()
    assert same(train(FOUR, tmp_path / "run"), train(FOUR, tmp_path / "other"))
    first, second = (json.loads((tmp_path / name / "config.json").read_bytes()) for name in ("run", "other"))
    assert first == second


def test_one_that_fails_in_its_first_round_leaves_it_free_too(tmp_path, monkeypatch):
    """After its first evaluation, as where memory is too little."""

    def too_large(*arguments, **more):
        raise UserError("out of memory")

    with monkeypatch.context() as patch:
        patch.setattr(rftlab.llm.training.trainer.Trainer, "round", too_large)
        with pytest.raises(UserError, match="out of memory"):
            train(replace(FOUR, seed=1), tmp_path / "run")
    assert (tmp_path / "run" / "curve.parquet").exists()
    assert same(train(FOUR, tmp_path / "run"), train(FOUR, tmp_path / "other"))


def test_the_first_rounds_that_are_kept_take_the_folder(tmp_path):
    run = replace(FOUR, checkpoint_every=1)
    killed_at(run, tmp_path, 2)
    with pytest.raises(UserError, match="seed = 0 there, 1 here; name another folder"):
        train(replace(run, seed=1), tmp_path)


@pytest.mark.parametrize("text", ['{"model_type": "llama"}', "[]", "half of"])
def test_a_configuration_of_somebody_else_stays(text, tmp_path):
    """Such as that of a model's folder."""
    (tmp_path / "config.json").write_text(text)
    with pytest.raises(UserError, match=r"[;,] (or )?name another folder$"):
        train(FOUR, tmp_path)
    assert (tmp_path / "config.json").read_text() == text
