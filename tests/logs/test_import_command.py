"""`rftlab import`: what it prints and keeps; twice is once."""

import json
import os

import pytest

from rftlab.shared.plumbing.errors import UserError
from rftlab.studies.readers import read_collection, read_logs
from rftlab.studies.readers.store import write_collection
from tests.support.logs.formats import long_csv, said, verl_log
from tests.support.machine.here import rftlab


@pytest.fixture
def log(tmp_path):
    (tmp_path / "run.log").write_text(verl_log().text)
    return tmp_path / "run.log"


def content(folder):
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_it_prints_the_design_and_what_could_not_be_told(log, tmp_path):
    status, text = rftlab("import", log, "--results", tmp_path / "results")
    assert status == 0
    for words in (
        "prompts a round (B)",
        "64",
        "rollouts a prompt (K)",
        "updates a round",
        "group_zscore",
        "unknown: KL coefficient, model",
        "verl console",
    ):
        assert words in text
    assert "kept in" in text and (tmp_path / "results" / "imported" / "run").is_dir()


def test_twice_changes_nothing_and_other_logs_are_refused(log, tmp_path):
    assert rftlab("import", log, "--results", tmp_path / "results")[0] == 0
    before = content(tmp_path / "results")
    status, text = rftlab("import", log, "--results", tmp_path / "results")
    assert (status, content(tmp_path / "results")) == (0, before) and "unchanged" in text
    log.write_text(verl_log(1).text)
    status, text = rftlab("import", log, "--results", tmp_path / "results")
    assert status == 2 and "holds another import" in text and content(tmp_path / "results") == before
    assert rftlab("import", log, "--results", tmp_path / "results", "--name", "second")[0] == 0


def test_what_is_kept_is_read_again(log, tmp_path):
    (tmp_path / "long.csv").write_text(long_csv().text)
    runs = read_logs([log, tmp_path / "long.csv"])
    assert write_collection(tmp_path / "results", "two", runs)
    assert not write_collection(tmp_path / "results", "two", runs)
    again = read_collection(tmp_path / "results", "two")
    assert [run.name for run in again] == [run.name for run in runs]
    assert [run.design for run in again] == [run.design for run in runs]
    assert [said([run]) for run in again] == [said([run]) for run in runs]
    assert [run.notes for run in again] == [run.notes for run in runs]
    assert [run.sources for run in again] == [run.sources for run in runs]


@pytest.mark.parametrize("name", ["imported.json", "curves.parquet", "checksums.json"])
def test_a_collection_that_was_changed_is_a_line(name, log, tmp_path):
    write_collection(tmp_path / "results", "c", read_logs([log]))
    path = tmp_path / "results" / "imported" / "c" / name
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)
    with pytest.raises(UserError, match="cannot be trusted"):
        read_collection(tmp_path / "results", "c")
    path.unlink()
    os.symlink("/etc/passwd", path)
    with pytest.raises(UserError):
        read_collection(tmp_path / "results", "c")


def test_no_file_keeps_the_folder_of_the_log(log, tmp_path):
    write_collection(tmp_path / "results", "c", read_logs([log]))
    facts = json.loads((tmp_path / "results" / "imported" / "c" / "imported.json").read_text())
    assert str(tmp_path) not in json.dumps(facts) and facts["runs"][0]["sources"][0][0] == "run.log"


def test_a_configuration_alone_is_explained(tmp_path):
    (tmp_path / "args.json").write_text(
        json.dumps({"num_generations": 8, "per_device_train_batch_size": 4, "gradient_accumulation_steps": 4})
    )
    status, text = rftlab("import", "--config", tmp_path / "args.json", "--processes", 2)
    assert status == 0
    assert [line.split() for line in text.splitlines() if "(B)" in line or "(K)" in line] == [
        ["prompts", "a", "round", "(B)", "4"],
        ["rollouts", "a", "prompt", "(K)", "8"],
    ]


def test_texts_of_a_configuration_are_shown_and_not_obeyed(tmp_path):
    """Of a script and of JSON: no control characters, no markup."""
    (tmp_path / "run.sh").write_text("x.py --num_generations 4 --model_name_or_path \x1b[2J[red]x")
    (tmp_path / "a.json").write_text(
        json.dumps({"num_generations": 8, "loss_type": "\x1b[2J", "model_name_or_path": "[b]\n"})
    )
    for name, shown in (("run.sh", "\\x1b[2J[red]x"), ("a.json", "\\x1b[2J")):
        status, text = rftlab("import", "--config", tmp_path / name)
        assert status == 0 and shown in text and text.replace("\n", "").isprintable()


def test_a_reader_in_a_file_of_ones_own(tmp_path):
    (tmp_path / "mine.py").write_text(
        "from rftlab.studies.readers import RawRun\n\n\ndef read(path):\n    run = RawRun('mine', 'mine')\n"
        "    for step, word in enumerate(path.read_text().split()):\n        run.add('entropy', step + 1, "
        "float(word), step)\n    return run\n"
    )
    (tmp_path / "x.txt").write_text("0.5 0.25")
    arguments = ("import", tmp_path / "x.txt", "--reader", f"{tmp_path / 'mine.py'}:read", "--results", tmp_path / "r")
    assert rftlab(*arguments)[0] == 0
    assert said(read_collection(tmp_path / "r", "x")) == {(1, "train", "entropy"): 0.5, (2, "train", "entropy"): 0.25}
    assert rftlab(*arguments[:3], f"{tmp_path / 'mine.py'}:other")[0] == 2


@pytest.mark.parametrize(
    "arguments",
    [
        (),
        ("missing.log",),
        (".",),
        ("--config", "missing"),
        ("x", "--name", "../up"),
        ("x", "--columns", "step"),
        ("x", "--columns", "reward_maen=critic/score/mean"),
        ("x", "--columns", "reward=critic/score/mean", "reward=actor/grad_norm"),
        ("x", "--prompts", "0"),
        ("x", "--reader", "a:b"),
    ],
)
def test_wrong_command_lines_are_a_line(arguments, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "x").write_text(verl_log().text)
    status, text = rftlab("import", *arguments)
    assert status == 2
    assert text.startswith("rftlab: ")
    assert text.count("\n") == 1
    assert sorted(path.name for path in tmp_path.iterdir()) == ["x"]


def test_a_configuration_that_is_missing_is_told_apart_from_a_log():
    status, text = rftlab("import", "--config", "missing")
    assert status == 2 and "TRL's arguments" in text and "TensorBoard" not in text
