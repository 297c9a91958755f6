"""Write files and folders atomically, with checksums that detect damage.

The results store of the simulator writes with this too: it needs the standard library, shared/plumbing/folders.py and
shared/plumbing/errors.py alone.
"""

import contextlib
import errno
import hashlib
import json
import os
import shutil
import uuid
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

from rftlab.shared.plumbing.errors import UserError
from rftlab.shared.plumbing.folders import FOLDER, opened, path_kind, read_json, remove

WRITING, CHECKSUMS, REPLACED = ".writing-", "checksums.json", "replaced"
_REASONS = {
    errno.ENOSPC: "the disk is full",
    errno.EDQUOT: "the disk quota is used up",
    errno.EACCES: "no permission",
    errno.EROFS: "the file system is read-only",
}


def reason(error: OSError) -> str:
    """Return a system error in words that a user can act on."""
    return _REASONS.get(error.errno or 0, error.strerror or str(error))


@contextlib.contextmanager
def reported(
    place: Path, kept: str = "nothing that was there is lost", also: type[Exception] | tuple[()] = ()
) -> Iterator[None]:
    """Turn a system error while writing at `place` into one line for the user.

    also: exceptions that a library raises in place of a system error.
    """
    try:
        yield
    except OSError as error:
        raise UserError(f"{place} cannot be written: {reason(error)}; {kept}") from None
    except also as error:
        raise UserError(f"{place} cannot be written: {error}; {kept}") from None


def write_file(path: Path, data: bytes | memoryview) -> None:
    """Write a file atomically: readers see the old content or the new, never a part. It replaces a file of that name
    but no folder; a system error names `path`."""
    path.parent.mkdir(parents=True, exist_ok=True)
    scratch = _beside(path)
    try:
        with scratch.open("xb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        # A rename within a folder is atomic: a reader sees the old file or the new one.
        os.replace(scratch, path)
    except OSError as error:
        if error.errno is not None:  # an error with a message of its own would lose it
            error.filename = str(path)
        raise
    finally:
        scratch.unlink(missing_ok=True)


def _beside(path: Path) -> Path:
    """Return an unused name in the same folder. Files made there get permissions by the user's umask, unlike those of
    `tempfile`, which only the user can read."""
    return path.parent / f"{WRITING}{uuid.uuid4().hex}"


def write_folder(target: Path, files: Mapping[str, bytes | memoryview | Callable[[Path], None]]) -> None:
    """Write a folder of files with their checksums, renamed into place when it is complete; it replaces one of that
    name.

    files: by name, the content, or a function that writes it to a path.
    """
    target.parent.mkdir(parents=True, exist_ok=True)
    scratch = _beside(target)
    scratch.mkdir()
    try:
        for name, content in files.items():
            if callable(content):
                content(scratch / name)
                (scratch / name).chmod(
                    scratch.stat().st_mode & 0o666
                )  # safetensors makes its files readable by the user alone
                _settle(scratch / name)
            else:
                write_file(scratch / name, content)
        # Checksums are computed from the files on the disk rather than from the data in memory.
        sums = {name: file_sha256(scratch / name) for name in files}
        write_file(scratch / CHECKSUMS, json.dumps(sums, indent=1).encode())
        if path_kind(target):
            # A folder cannot be renamed onto one that is not empty, so the old one moves into the new one first.
            os.rename(target, scratch / REPLACED)
        os.rename(scratch, target)
        with contextlib.suppress(OSError):
            remove(target / REPLACED)
    except BaseException:
        shutil.rmtree(scratch, ignore_errors=True)
        raise


def _settle(path: Path) -> None:
    """Flush a file to the disk, before its folder is renamed."""
    with path.open("rb") as file:
        os.fsync(file.fileno())


def file_sha256(path: Path) -> str:
    """Return the SHA-256 checksum of a file."""
    with opened(path) as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def verify_folder(folder: Path, needed: tuple[str, ...] = ()) -> None:
    """Raise ValueError with the reason unless a folder holds intact files as `write_folder` wrote them, `needed` among
    them."""
    try:
        sums = read_json(folder / CHECKSUMS) if path_kind(folder) == FOLDER else None
        if not isinstance(sums, dict) or not sums or any(Path(name).name != name for name in sums):
            raise ValueError(f"no folder with a {CHECKSUMS} that names files in it")
        missing = [name for name in needed if name not in sums]
        damaged = [name for name, checksum in sums.items() if file_sha256(folder / name) != checksum]
    except (OSError, ValueError) as error:
        raise ValueError(f"{folder}: {type(error).__name__}: {error}") from None
    for name in missing:
        raise ValueError(f"{folder} has no {name}")
    for name in damaged:
        raise ValueError(f"{folder / name} does not match its checksum")


def remove_partial(folder: Path) -> None:
    """Remove partial files and folders that killed processes left."""
    for path in folder.glob(f"{WRITING}*"):
        remove(path)
