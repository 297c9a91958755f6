"""docs/import.md prints what the command prints."""

from pathlib import Path

from rftlab.studies.readers import read_collection
from tests.support.machine.here import rftlab

LINES = (Path(__file__).resolve().parents[2] / "docs" / "import.md").read_text().splitlines()


def block(first: str) -> list[str]:
    """The indented lines from `first` on."""
    start = LINES.index(f"    {first}")
    end = next(i for i in range(start, len(LINES)) if not LINES[i].startswith("    "))
    return [line[4:] for line in LINES[start:end]]


def plain(text: str) -> list[str]:
    return [line.rstrip() for line in text.splitlines()]


def test_the_table_of_the_docs_is_imported_as_they_say(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    _, *table, _, command = block("cat >mine.csv <<'END'")
    (tmp_path / "mine.csv").write_text("\n".join(table) + "\n")
    status, text = rftlab(*command.split()[1:])
    assert status == 0 and plain(text) == block("runs")
    (run,) = read_collection("results", "mine")
    rows = run.curves[run.curves["split"] == "test"]
    assert (rows["round"].tolist(), rows["value"].tolist(), run.design.prompts) == ([3, 6], [0.245, 0.31], 32)


def test_the_configuration_of_the_docs_is_explained_as_they_say(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    whole = " ".join(LINES)
    (tmp_path / "grpo.json").write_text(whole[whole.index('`{"per_device') + 1 : whole.index("}` in `grpo.json`") + 1])
    (command,) = block("rftlab import --config grpo.json --processes 2")
    status, text = rftlab(*command.split()[1:])
    assert status == 0 and plain(text)[: len(block("design of grpo.json (trl)"))] == block("design of grpo.json (trl)")
