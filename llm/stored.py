"""Lock a run's folder for the one process that trains in it, and read its configuration and checkpoints later.

The kernel releases the lock when its holder ends, however it ends. The file stays, because removing it would let two
processes hold locks on two files of one name."""

import contextlib
import dataclasses
import errno
import fcntl
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import NoneType, UnionType
from typing import Any, NamedTuple, get_args, get_origin, get_type_hints

from rftlab.llm.config import LLMRun, LoRA, Model
from rftlab.llm.tasks.config import TaskConfig
from rftlab.shared.plumbing.errors import UserError, check, plain
from rftlab.shared.plumbing.files import reported, verify_folder
from rftlab.shared.plumbing.folders import (
    FILE,
    FOLDER,
    file_below,
    folders_in,
    numbered,
    opened,
    path_kind,
    read_json,
    real,
)

LOCK = "lock"
_WITHOUT_LOCKS = (errno.ENOSYS, errno.ENOTSUP, errno.ENOLCK)
"""Errors of network file systems without locks."""
_GLANCE = 0.05
"""Seconds, far longer than `held` keeps the lock."""


class Busy(UserError):
    """Raised where another process trains in the folder."""


@contextlib.contextmanager
def locked(folder: Path, remark: Callable[[str], None], waiting: str = "") -> Iterator[None]:
    """Make the folder, and lock it for this process. Raises Busy at once, without a change, where another process has
    it.

    waiting: a message; if given, it is shown and the other process is waited for, in place of an error.
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
    """Lock an open file, with a second try in case another process only checked it."""
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
    """Whether a process has locked the folder, tested without waiting or writing; False where the file system has no
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


CONFIG, CHECKPOINTS, STATE = "config.json", "checkpoints", "state.json"


class StoredRun(NamedTuple):
    """The run in a folder, with its configuration."""

    folder: Path
    config: dict[str, Any]

    @property
    def rounds(self) -> int:
        """Number of rounds that were planned."""
        return int(self.config["design"]["rounds"])

    @property
    def model(self) -> LLMRun:
        """The settings of the run that decide on its model: source, adapters, the arithmetic that `tiny` read, the
        seed. Other settings have defaults, on a CPU. Raises UserError for settings that this version does not know."""
        try:
            parts = (built(kind, self.config[name]) for name, kind in _PARTS.items())
            task, model, lora = parts
            return LLMRun(
                task=task, model=model, lora=lora, seed=self.config["seed"], temperature=self.config["temperature"]
            )
        except (KeyError, TypeError, ValueError, AttributeError, UserError) as error:
            raise UserError(
                f"{self.folder / CONFIG} is of no run of this version: {type(error).__name__}: {error}"
            ) from None


_PARTS: dict[str, type] = {"task": TaskConfig, "model": Model, "lora": LoRA}


def is_run(folder: Path) -> bool:
    """Whether a folder holds a language model's run."""
    try:
        config = read_json(folder / CONFIG) if path_kind(folder / CONFIG) == FILE else None
    except (OSError, ValueError):
        return False
    return isinstance(config, dict) and config.get("level") == "llm"


def trained_in(folder: Path) -> list[Path]:
    """Return the folder, if it holds a run; else the folders directly below it that do."""
    return [folder] if is_run(folder) else [each for each in folders_in(folder) if is_run(each)]


def stored_run(folder: Path) -> StoredRun:
    """Return the run in a folder of `rftlab train`. Raises UserError where there is none."""
    place = folder / CONFIG
    allowed = "allowed: a folder of rftlab train"
    check(path_kind(real(folder)) == FOLDER, f"{folder} is no folder; {allowed}")
    try:
        config = read_json(place)
    except (OSError, ValueError) as error:
        raise UserError(f"{place} cannot be read: {getattr(error, 'strerror', None) or error}; {allowed}") from None
    known = isinstance(config, dict) and config.get("level") == "llm" and isinstance(config.get("design"), dict)
    rounds = config["design"].get("rounds") if known else None
    check(type(rounds) is int and rounds > 0, f"{place} is of no language model's run; {allowed}")
    return StoredRun(folder, config)


def find_checkpoint(run: StoredRun, round_index: int | None, needed: tuple[str, ...]) -> Path:
    """Return the checkpoint of a round, the last if None, with the files in `needed`. Raises UserError, with the
    existing rounds."""
    places = {int(place.name): place for place in numbered(run.folder / CHECKPOINTS)}
    there = ", ".join(map(str, places)) or "none"
    wanted = max(places, default=0) if round_index is None else round_index
    check(wanted in places, f"{run.folder} has no checkpoint of round {wanted}; there are: {there}")
    try:
        verify_folder(places[wanted], (STATE,))
        facts, sums = read_json(places[wanted] / STATE), read_json(places[wanted] / "checksums.json")
        check(
            isinstance(facts, dict) and facts.get("config") == run.config,
            f"{places[wanted]} differs from {run.folder / CONFIG}; allowed: a folder with one run",
        )
        check(
            all(name in sums for name in needed),
            f"{places[wanted]} has no weights: a study drops those of finished runs; allowed: a folder of rftlab train",
        )
    except (OSError, ValueError) as error:
        raise UserError(f"damaged: {error}; there are checkpoints of rounds {there}") from None
    return places[wanted]


def flat_config(config: dict[str, Any], prefix: str = "") -> dict[str, Any]:
    """Return the settings of a configuration by dotted names."""
    flat: dict[str, Any] = {}
    for name, value in config.items():
        flat |= flat_config(value, f"{prefix}{name}.") if isinstance(value, dict) else {f"{prefix}{name}": value}
    return flat


def built(kind: Any, facts: Any) -> Any:
    """Return a dataclass from its plain values, with lists as tuples. Raises TypeError or KeyError for other values."""
    if not dataclasses.is_dataclass(kind):
        return tuple(facts) if get_origin(kind) is tuple else facts
    hints = get_type_hints(kind)
    unknown = set(facts) - set(hints)
    if unknown:
        raise KeyError(plain(sorted(unknown)[0])[:80])
    return kind(**{name: built(_single(hints[name]), value) for name, value in facts.items()})  # type: ignore[operator]


def _single(hint: Any) -> Any:
    """Return the type in a union with None; other types are returned unchanged."""
    if isinstance(hint, UnionType):
        return next((part for part in get_args(hint) if part is not NoneType), hint)
    return hint
