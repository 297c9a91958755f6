"""One process at a time in a folder: a lock that the kernel takes back when its holder ends, however it ends.

The file stays when the lock is gone. Removing it would let two processes hold locks on two files of one name.
"""

import contextlib
import errno
import fcntl
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from rftlab.shared.plumbing.errors import UserError
from rftlab.shared.plumbing.files import reported
from rftlab.shared.plumbing.folders import FILE, file_below, opened, path_kind

LOCK = "lock"
_WITHOUT_LOCKS = (errno.ENOSYS, errno.ENOTSUP, errno.ENOLCK)
"""Some network file systems have none."""
_GLANCE = 0.05
"""Seconds, far more than `held` has the lock."""


class Busy(UserError):
    """Another process trains in the folder."""


@contextlib.contextmanager
def locked(folder: Path, remark: Callable[[str], None], waiting: str = "") -> Iterator[None]:
    """Make the folder, and keep it for this process. Where another one has it, raise Busy, at once and without a change
    to anything.

    waiting: what to say and then wait for the other, in place of an error.
    """
    with reported(folder):
        folder.mkdir(parents=True, exist_ok=True)
        file = file_below(folder, LOCK).open("ab")
    with file:
        try:
            _take(file, remark, waiting)
        except BlockingIOError:
            raise Busy(f"{folder}: another process is training here; wait for it or name another folder") from None
        except OSError as error:
            if error.errno not in _WITHOUT_LOCKS:
                raise
            remark(f"{folder}: this file system has no locks; see to it that no other process trains here")
        yield


def _take(file, remark: Callable[[str], None], waiting: str) -> None:
    """The lock of an open file; a second try after one who only looked."""
    with contextlib.suppress(BlockingIOError):
        return fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    time.sleep(_GLANCE)
    try:
        return fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        if not waiting:
            raise
    remark(waiting)
    return fcntl.flock(file, fcntl.LOCK_EX)


def held(folder: Path) -> bool:
    """Whether a process has the folder, seen without waiting or writing; False too where the file system has no
    locks."""
    if path_kind(folder / LOCK) != FILE:
        return False
    with opened(folder / LOCK) as file:
        try:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
        except OSError as error:
            if error.errno not in _WITHOUT_LOCKS:
                raise
        return False
