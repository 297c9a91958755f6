"""Every format damaged in every way: refused in one line, or imported with values that are true."""

import pytest

from rftlab.shared.plumbing.errors import UserError
from rftlab.studies.readers import read_logs
from tests.support.logs.formats import DAMAGES, LOGS, damaged, said, wrong

CASES = [(kind, damage, seed) for kind in LOGS for damage in DAMAGES for seed in (0, 1)]


@pytest.mark.parametrize(("kind", "damage", "seed"), CASES)
def test_a_damaged_log_is_refused_in_a_line_or_says_nothing_wrong(kind, damage, seed, tmp_path):
    log, data = damaged(kind, damage, seed)
    path = tmp_path / log.name
    path.write_bytes(data)
    try:
        runs = read_logs([path])
    except UserError as refused:
        text = str(refused)
        assert log.name in text and "allowed" in text and "\n" not in text and text.isprintable()
    else:
        assert wrong(said(runs), log.truth) == {}
        assert all(note.isprintable() for run in runs for note in run.notes)


@pytest.mark.parametrize("name", ["empty", "/proc/kmsg", "/proc/self/mem"])
def test_a_file_of_no_bytes_is_not_opened(name, tmp_path, monkeypatch):
    """Some are windows on the machine, and reading them would not end."""
    (tmp_path / "empty").touch()
    path = tmp_path / name
    monkeypatch.setattr(type(path), "open", lambda *arguments, **named: pytest.fail("opened"))
    with pytest.raises(UserError, match="is empty; allowed: " if path.is_file() else "does not exist"):
        read_logs([path])
