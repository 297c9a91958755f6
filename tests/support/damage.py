"""Ways to damage a file or a folder: what the two test_damage.py, of studies and of the trainer, do to results."""

import io
import json
import os
import shutil
import signal
import socket
from contextlib import contextmanager, suppress
from pathlib import Path

import numpy as np
import pandas as pd

TEXTS = (
    "",
    "{}",
    "[]",
    "null",
    "3",
    '"x"',
    "[" * 100_000,
    '{"a":' * 300 + "1" + "}" * 300,
    "1" * 5000,
    "NaN",
    "1e999",
    "\x00",
    "\ud800",
    "{",
    "[null, {}]",
)
VALUES = (None, True, -1, 10**30, 1e308, float("nan"), "", "x", "\n", [], {}, [[]], {"a": 1})


def _tables(data: bytes) -> list[pd.DataFrame]:
    """What a table is turned into."""
    table = pd.read_parquet(io.BytesIO(data))
    shifted = table.assign(**{name: table[name] + 1 for name in ("seed", "round") if name in table})
    return [
        table.iloc[:0],
        table * np.nan,
        table.astype(str),
        table.iloc[:, 1:],
        shifted,
        table * 10**9,
        table[::-1],
        pd.concat([table, table]),
    ]


def _rewrite(path: Path, number: int) -> None:
    """Other content that has the form of the old one: another field of JSON, another table."""
    data = path.read_bytes()
    with suppress(ValueError, KeyError, TypeError):
        if path.suffix == ".parquet":
            options = _tables(data)
            options[number % len(options)].to_parquet(path)
        elif path.suffix == ".json":
            facts = json.loads(data)
            name = sorted(facts)[number % len(facts)]
            path.write_text(json.dumps(facts | {name: VALUES[number // len(facts) % len(VALUES)]}))


def _flip(path: Path, number: int) -> None:
    data = bytearray(path.read_bytes())
    if data:
        data[number % len(data)] ^= 1 << number % 8
        path.write_bytes(data)


def _away(path: Path) -> None:
    shutil.rmtree(path) if path.is_dir() and not path.is_symlink() else path.unlink()


def _bind(path: Path) -> None:
    here = os.getcwd()
    os.chdir(path.parent)  # a socket's path is short
    with socket.socket(socket.AF_UNIX) as bound:
        bound.bind("s")
        os.rename("s", path.name)
    os.chdir(here)


PUT = {
    "a file": lambda path, outside: path.write_text("x"),
    "a folder": lambda path, outside: path.mkdir(),
    "a pipe": lambda path, outside: os.mkfifo(path),
    "a socket": lambda path, outside: _bind(path),
    "a symbolic link": lambda path, outside: path.symlink_to(outside),
    "a dangling link": lambda path, outside: path.symlink_to("nowhere"),
    "a looping link": lambda path, outside: path.symlink_to(path.name),
}
"""What may lie at a place; a symbolic link leads outside."""


def _put(path: Path, kind: str, outside: Path | None = None) -> None:
    _away(path)
    PUT[kind](path, outside)


def _swap(path: Path, other: Path) -> None:
    """Exchange two places; not one that lies in the other."""
    if path != other and path not in other.parents and other not in path.parents:
        spare = path.with_name("spare")
        os.rename(path, spare)
        os.rename(other, path)
        os.rename(spare, other)


def _copy(path: Path, other: Path) -> None:
    if path.is_dir() and other.is_dir() and path != other and path not in other.parents and other not in path.parents:
        shutil.copytree(other, path, dirs_exist_ok=True)
    elif path.is_file() and other.is_file() and path != other:
        shutil.copyfile(other, path)


FILES = {
    "truncate": lambda path, other, outside, n: os.truncate(path, n % (path.stat().st_size + 1)),
    "grow": lambda path, other, outside, n: os.truncate(path, 1 << 40),
    "flip a bit": lambda path, other, outside, n: _flip(path, n),
    "rewrite": lambda path, other, outside, n: _rewrite(path, n),
    "other text": lambda path, other, outside, n: path.write_text(TEXTS[n % len(TEXTS)], errors="replace"),
    "link to a file outside": lambda path, other, outside, n: _put(path, "a symbolic link", outside / "old.parquet"),
    "folder": lambda path, other, outside, n: _put(path, "a folder"),
}
BOTH = {
    "remove": lambda path, other, outside, n: _away(path),
    "pipe": lambda path, other, outside, n: _put(path, "a pipe"),
    "socket": lambda path, other, outside, n: _put(path, "a socket"),
    "dangling link": lambda path, other, outside, n: _put(path, "a dangling link"),
    "looping link": lambda path, other, outside, n: _put(path, "a looping link"),
    "link outside": lambda path, other, outside, n: _put(path, "a symbolic link", outside),
    "moved outside": lambda path, other, outside, n: (
        os.rename(path, outside / "moved"),
        path.symlink_to(outside / "moved"),
    ),
    "link inside": lambda path, other, outside, n: (
        None if path in (other, *other.parents) else _put(path, "a symbolic link", other)
    ),
    "swap": lambda path, other, outside, n: _swap(path, other),
    "copy": lambda path, other, outside, n: _copy(path, other),
}
FOLDERS = {
    "file": lambda path, other, outside, n: _put(path, "a file"),
    "empty": lambda path, other, outside, n: _put(path, "a folder"),
    "beside": lambda path, other, outside, n: (
        path / ("1²", ".writing-x", "x-s99999999999999999999-ab", "\n", "tmpx")[n % 5]
    ).symlink_to(outside),
}
KINDS = sorted(FILES | BOTH | FOLDERS)


def places(root: Path) -> list[str]:
    """What can be damaged below a folder, which is not damaged itself."""
    return sorted(str(path.relative_to(root)) for path in root.rglob("*"))


def hurt(root: Path, outside: Path, place: str, other: str, kind: str, number: int) -> None:
    """Do one kind of damage; one that is none for what lies there is the one for both."""
    path = root / place
    ways = BOTH | (FOLDERS if path.is_dir() else FILES)
    ways.get(kind, ways["pipe"])(path, root / other, outside, number)


def old_files(outside: Path) -> None:
    """A folder of somebody else, whose files are old and have names like ours."""
    for name in (
        "old.parquet",
        "tmpold",
        ".writing-old",
        "000001-000002.parquet",
        "config.json",
        "done.json",
        "000009/state.json",
    ):
        (outside / name).parent.mkdir(parents=True, exist_ok=True)
        (outside / name).write_text("mine")
        os.utime(outside / name, (0, 0))


def content(folder: Path) -> dict[str, bytes]:
    """Every file below a folder."""
    return {str(path.relative_to(folder)): path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}


@contextmanager
def no_hang(seconds: int = 300):
    """A safety net: what waits for ever fails."""

    def ring(*_):
        raise AssertionError("it hangs")

    before = signal.signal(signal.SIGALRM, ring)
    signal.alarm(seconds)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)
