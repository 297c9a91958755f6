"""`rftlab import`: what it prints and keeps; twice is once; docs/import.md prints what it prints."""

import json
import os

import pytest

from rftlab.shared.plumbing.errors import UserError
from rftlab.studies.readers import read_collection, read_logs
from rftlab.studies.readers.store import write_collection
from tests.support.damage import content
from tests.support.estimators.vectors import ROOT
from tests.support.logs.formats import long_csv, said, verl_log
from tests.support.machine.here import refused, rftlab, shown


@pytest.fixture
def log(tmp_path):
    (tmp_path / "run.log").write_text(verl_log().text)
    return tmp_path / "run.log"


def test_it_prints_the_design_and_what_could_not_be_told(log, tmp_path):
    text = shown("import", log, "--results", tmp_path / "results")
    rows = "prompts a round (B)|64|rollouts a prompt (K)|updates a round|group_zscore|unknown: KL coefficient, model"
    assert [words for words in (*rows.split("|"), "verl console", "kept in") if words not in text] == []
    assert (tmp_path / "results" / "imported" / "run").is_dir()


def test_twice_changes_nothing_and_other_logs_are_refused(log, tmp_path):
    ask, results = ("import", log, "--results", tmp_path / "results"), tmp_path / "results"
    shown(*ask)
    before = content(results)
    assert "unchanged" in shown(*ask) and content(results) == before
    log.write_text(verl_log(1).text)
    status, text = rftlab(*ask)
    assert status == 2 and "holds another import" in text and content(results) == before
    shown(*ask, "--name", "second")


def test_what_is_kept_is_read_again(log, tmp_path):
    (tmp_path / "long.csv").write_text(long_csv().text)
    runs = read_logs([log, tmp_path / "long.csv"])
    assert write_collection(tmp_path / "results", "two", runs)
    assert not write_collection(tmp_path / "results", "two", runs)
    kept = [
        [(run.name, run.design, said([run]), run.notes, run.sources) for run in one]
        for one in (runs, read_collection(tmp_path / "results", "two"))
    ]
    assert kept[0] == kept[1]
    facts = (tmp_path / "results" / "imported" / "two" / "imported.json").read_text()
    assert str(tmp_path) not in facts and json.loads(facts)["runs"][0]["sources"][0][0] == "run.log"


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


def test_texts_of_a_configuration_are_shown_and_not_obeyed(tmp_path):
    """Of a script and of JSON: no control characters, no markup."""
    (tmp_path / "run.sh").write_text("x.py --num_generations 4 --model_name_or_path \x1b[2J[red]x")
    odd = {"num_generations": 8, "loss_type": "\x1b[2J", "model_name_or_path": "[b]\n"}
    (tmp_path / "a.json").write_text(json.dumps(odd))
    for name, words in (("run.sh", "\\x1b[2J[red]x"), ("a.json", "\\x1b[2J")):
        text = shown("import", "--config", tmp_path / name)
        assert words in text and text.replace("\n", "").isprintable()


def test_a_reader_in_a_file_of_ones_own(tmp_path):
    (tmp_path / "mine.py").write_text(
        "from rftlab.studies.readers import RawRun\n\n\ndef read(path):\n    run = RawRun('mine', 'mine')\n"
        "    for step, word in enumerate(path.read_text().split()):\n        run.add('entropy', step + 1, "
        "float(word), step)\n    return run\n"
    )
    (tmp_path / "x.txt").write_text("0.5 0.25")
    arguments = ("import", tmp_path / "x.txt", "--reader", f"{tmp_path / 'mine.py'}:read", "--results", tmp_path / "r")
    shown(*arguments)
    assert said(read_collection(tmp_path / "r", "x")) == {(1, "train", "entropy"): 0.5, (2, "train", "entropy"): 0.25}
    assert rftlab(*arguments[:3], f"{tmp_path / 'mine.py'}:other")[0] == 2


READER = """
from __future__ import annotations
from dataclasses import dataclass
import numpy as np
import beside
from rftlab.studies.readers import RawRun

@dataclass
class Mine:
    x: int

def read(path):
    run = RawRun("mine", "mine")
    for step in range(3):
        run.add("entropy", step, 0.5, step)
    series = run.series["entropy"]
    WRONG
    return run
"""


@pytest.mark.parametrize(
    ("wrong", "named"),
    [
        ("", ""), ("series.values = series.values[:2]", "entropy has other steps"), ("run.notes = [5]", "no texts"),
        ("series.steps = np.arange(3) * 10**15", "from 0 to 2^31 - 1"), ("series.values = [1j] * 3", "complex128"),
        ("series.values = ['0.5'] * 3", "Cannot cast"), ("run.config = [1]", "no run: AttributeError"),
        ("run.pieces = (1,)", "AttributeError"), ("return 5", "it returns int; allowed: a RawRun"),
        ("raise KeyError('x')", "KeyError"), ("raise SystemExit(0)", "mine.py:read"), ("exit()", "mine.py:read"),
    ],
)  # fmt: skip
def test_what_a_reader_returns_is_looked_at(wrong, named, tmp_path):
    """And its file may fail or end, define what looks for its module, and import what lies beside it."""
    (tmp_path / "beside.py").write_text("")
    (tmp_path / "x.txt").write_text("x")
    (tmp_path / "mine.py").write_text(READER.replace("WRONG", wrong))
    ask = ("import", tmp_path / "x.txt", "--reader", f"{tmp_path / 'mine.py'}:read", "--results", tmp_path / "r")
    status, text = rftlab(*ask)
    assert status == (2 if wrong else 0) and named in text and (not wrong or text.count("\n") == 1), text


@pytest.mark.parametrize(
    "arguments",
    [
        (), ("missing.log",), (".",), ("--config", "missing"), ("x", "--name", "../up"), ("x", "--columns", "step"),
        ("x", "--columns", "reward_maen=critic/score/mean"),
        ("x", "--columns", "reward=critic/score/mean", "reward=actor/grad_norm"), ("x", "--prompts", "0"),
        ("x", "--reader", "a:b"),
    ],
)  # fmt: skip
def test_wrong_command_lines_are_a_line(arguments, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "x").write_text(verl_log().text)
    text = refused("import", *arguments)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["x"]
    if "--config" in arguments:  # told apart from a log that is missing
        assert "TRL's arguments" in text and "TensorBoard" not in text


LINES = (ROOT / "docs" / "import.md").read_text().splitlines()


def block(first: str) -> list[str]:
    """The indented lines of docs/import.md from `first` on."""
    start = LINES.index(f"    {first}")
    end = next(i for i in range(start, len(LINES)) if not LINES[i].startswith("    "))
    return [line[4:] for line in LINES[start:end]]


def test_the_table_and_the_configuration_of_the_docs_are_imported_as_they_say(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    _, *table, _, command = block("cat >mine.csv <<'END'")
    (tmp_path / "mine.csv").write_text("\n".join(table) + "\n")
    assert [line.rstrip() for line in shown(*command.split()[1:]).splitlines()] == block("runs")
    (run,) = read_collection("results", "mine")
    rows = run.curves[run.curves["split"] == "test"]
    assert (rows["round"].tolist(), rows["value"].tolist(), run.design.prompts) == ([3, 6], [0.245, 0.31], 32)
    whole, said = " ".join(LINES), block("design of grpo.json (trl)")
    (tmp_path / "grpo.json").write_text(whole[whole.index('`{"per_device') + 1 : whole.index("}` in `grpo.json`") + 1])
    (command,) = block("rftlab import --config grpo.json --processes 2")
    assert [line.rstrip() for line in shown(*command.split()[1:]).splitlines()][: len(said)] == said
