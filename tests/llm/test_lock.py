"""One process at a time in a folder, and nothing to clean up after it."""

import errno
import time

import pytest

import rftlab.llm.stored
from rftlab.llm.stored import Busy, locked
from rftlab.shared.plumbing.errors import UserError
from tests.support.machine.locks import held


@pytest.fixture
def holder(tmp_path):
    with held(tmp_path / "run") as child:
        yield child


def open_once(folder):
    with locked(folder, pytest.fail):
        return True


def test_a_second_process_is_refused_at_once_in_one_line(holder, tmp_path):
    began = time.monotonic()
    with pytest.raises(Busy) as caught:
        open_once(tmp_path / "run")
    assert time.monotonic() - began < 30
    said = "another process is training here; wait for it or name another folder"
    assert str(caught.value) == f"{tmp_path / 'run'}: {said}"
    assert isinstance(caught.value, UserError) and open_once(tmp_path / "another")


def test_kill_9_of_the_holder_frees_the_folder(holder, tmp_path):
    holder.kill()
    holder.wait()
    assert open_once(tmp_path / "run")


def test_the_lock_goes_when_the_work_is_done_or_fails_and_not_with_a_refusal(tmp_path):
    """A refusal would free it if locks belonged to the process and not to the opened file."""
    with pytest.raises(ZeroDivisionError), locked(tmp_path, pytest.fail):
        raise ZeroDivisionError
    assert open_once(tmp_path) and open_once(tmp_path)
    assert [(path.name, path.stat().st_size) for path in tmp_path.iterdir()] == [("lock", 0)]
    with locked(tmp_path, pytest.fail):
        for _ in range(2):
            with pytest.raises(Busy):
                open_once(tmp_path)


def test_a_file_system_without_locks_is_a_remark(tmp_path, monkeypatch):
    def none(file, kind):
        raise OSError(errno.ENOLCK, "No locks available")

    monkeypatch.setattr(rftlab.llm.stored.fcntl, "flock", none)
    remarks = []
    with locked(tmp_path, remarks.append):
        assert len(remarks) == 1 and "has no locks" in remarks[0]
