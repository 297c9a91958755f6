"""Wrong command lines (bad_command_lines.txt): one line that says what is wrong, status 2, and nothing written."""

import shlex
from pathlib import Path

import pytest

from rftlab.studies.cli.commands import run
from rftlab.studies.console.terminal import guarded
from rftlab.studies.data.runs.limits import has_llm

TABLE = Path(__file__).with_name("bad_command_lines.txt").read_text().splitlines()
STRANGE = ["run\u00a0cell", "'\x1b[31m'", "'\u00e9'", "run 'a\nb'", "report --results 'a\nb'"]
LINES = dict(row.partition(" | ")[::2] for row in TABLE if not row.startswith("#")) | dict.fromkeys(STRANGE, "")
"""What is said of each, or a part of it."""

TRAINER = pytest.mark.skipif(not has_llm(), reason="the trainer is not installed, which is said first")


@pytest.mark.parametrize("line", LINES, ids=ascii)
def test_a_wrong_command_line_is_one_line_and_leaves_nothing(line, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    status = guarded(lambda: run(shlex.split(line)))
    said = capsys.readouterr()
    assert (status, said.out, list(tmp_path.iterdir())) == (2, "", [])
    assert said.err.startswith("rftlab: ") and said.err.count("\n") == 1
    assert "\x1b" not in said.err and len(said.err) > 20 and LINES[line] in said.err


def test_the_table_is_long_and_repeats_nothing():
    assert 700 <= len(LINES) == len(TABLE) - 1 + len(STRANGE)


@pytest.mark.parametrize(
    "line",
    [
        *(f"{command} --results loop" for command in ("report", "status", "dev doctor", "reproduce", "run cell")),
        *(f"{command} --results loop" for command in ("pilot", "predict", "dev score")),
        *("import loop", "diagnose loop", "signal loop", "report train:loop"),
        *(pytest.param(line, marks=TRAINER) for line in ("train --folder loop", "rollouts loop", "export loop model")),
    ],
)
def test_a_link_that_leads_to_itself_is_one_line(line, tmp_path, monkeypatch, capsys):
    """In place of a results folder, a log or a run."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "loop").symlink_to("loop")
    status = guarded(lambda: run(line.split()))
    said = capsys.readouterr()
    assert (status, said.out, said.err.count("\n")) == (2, "", 1) and "loop" in said.err


def test_a_refused_size_leaves_the_record_of_a_study_alone(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "rftlab.json").write_text('{"format": 1}')
    (tmp_path / "study-sim.json").write_text("mine")
    for flag in ("--rounds", "--seeds"):
        assert guarded(lambda flag=flag: run(["reproduce", "--results", ".", flag, str(10**23)])) == 2
    assert (tmp_path / "study-sim.json").read_text() == "mine"
