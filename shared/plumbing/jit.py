"""The decorators of every compiled function, and the cache that they fill.

numba's disk cache looks only at the file of the function that it loads: after an edit of a jitted function, a cached
caller in another file keeps running the old code. So the cache folder is named by a hash of every source file that
holds jitted code, and an edit anywhere starts an empty cache. The folder is chosen here, before any function is
decorated. Below it a function is found by its module, not by the place of its file, so that a checkout, a wheel and a
copy with equal sources share what was compiled.

Compiling takes seconds to two minutes, in which nothing else is to be seen, so a line on standard error says it before.
"""

import functools
import gc
import hashlib
import os
import sys
from pathlib import Path

import numba
from numba import config as numba_config

from rftlab.shared.plumbing.errors import UserError
from rftlab.shared.plumbing.folders import cache_folder
from rftlab.shared.plumbing.numba_parts import CPUDispatcher, caching, event

PURPOSES = {
    "rftlab.sim.round.general": "the simulator's general round",
    "rftlab.sim": "the simulator",
    "rftlab.shared": "the estimators",
}
"""The purpose of compiled functions, by the beginning of their module's name; the longest that fits."""


def compile_purpose(module: str) -> str | None:
    """Return the purpose of a module's functions; None where it is not ours."""
    return next(
        (purpose for start, purpose in PURPOSES.items() if module == start or module.startswith(start + ".")), None
    )


COLLECTION = 50_000, 20, 20
"""Thresholds of Python's garbage collector while numba compiles. With the usual ones it takes 5 to 7% of the time."""


class Announcer(event.Listener):
    """Says once for each purpose that code is compiled, and has garbage collected seldom meanwhile. numba tells it of
    no function that it finds in its cache."""

    def __init__(self, cache: Path | None):
        self.cache, self.inside = cache, 0
        self.said: set[str] = set()
        self.collection = gc.get_threshold()

    def on_start(self, event):
        """A compilation begins; one within another is a part of it."""
        self.inside += 1
        if self.inside == 1:
            self.collection = gc.get_threshold()
            gc.set_threshold(*COLLECTION)
        purpose = compile_purpose(event.data["dispatcher"].py_func.__module__)
        if self.inside > 1 or purpose is None or purpose in self.said:
            return
        self.said.add(purpose)
        kept = (
            f"once, and kept in {self.cache}"
            if self.cache
            else "in every process, because the compile cache cannot be written (rftlab dev doctor)"
        )
        print(f"rftlab: compiling {purpose} for this processor: up to two minutes, {kept}", file=sys.stderr, flush=True)

    def on_end(self, event):
        """A compilation is over."""
        self.inside -= 1
        if self.inside == 0:
            gc.set_threshold(*self.collection)


_SOURCES = tuple(Path(__file__).resolve().parents[2] / package for package in ("shared", "sim"))


def source_hash() -> str:
    """Hash of every source file that may hold jitted code, in a fixed order."""
    digest = hashlib.sha256()
    for folder in _SOURCES:
        for path in sorted(folder.rglob("*.py")):
            digest.update(path.relative_to(folder).as_posix().encode() + b"\0" + path.read_bytes() + b"\0")
    return digest.hexdigest()[:16]


def _choose_cache() -> Path | None:
    """Folder for compiled code, or None when no folder can be written (then every process compiles anew)."""
    try:
        folder = Path(os.environ.get("NUMBA_CACHE_DIR") or cache_folder("numba")) / source_hash()
        folder.mkdir(parents=True, exist_ok=True)
    except (OSError, UserError):
        return None
    return folder if os.access(folder, os.W_OK) else None


CACHE_FOLDER = _choose_cache()


class SourceLocator(caching.UserProvidedCacheLocator):
    """Where numba keeps a function of ours: in the cache folder, whose name tells the sources, by its package."""

    def __init__(self, py_func, py_file):
        super().__init__(py_func, py_file)
        package = py_func.__module__.removeprefix("rftlab.").rpartition(".")[0]
        self._cache_path = str(Path(numba_config.CACHE_DIR) / package)

    @classmethod
    def from_function(cls, py_func, py_file):
        """None for a function that is not below `shared` or `sim`; numba then keeps it as it keeps others."""
        ours = any(folder in Path(py_file).resolve().parents for folder in _SOURCES)
        return super().from_function(py_func, py_file) if ours else None

    def get_source_stamp(self):
        """Return the same for all files: the folder holds one version of the sources."""
        return ""


if CACHE_FOLDER is not None:
    numba_config.CACHE_DIR = str(CACHE_FOLDER)
    caching.CacheImpl._locator_classes.insert(0, SourceLocator)

event.register("numba:compile", Announcer(CACHE_FOLDER))

jit = functools.partial(
    numba.njit, cache=CACHE_FOLDER is not None, nogil=True, error_model="numpy", _nrt=True, no_cfunc_wrapper=True
)


class Inner(CPUDispatcher):
    """A function without the code that takes Python's arguments, where a call from Python would end the process."""

    def __call__(self, *args, **kwargs):
        """Always a TypeError."""
        raise TypeError(
            f"{self.py_func.__module__}.{self.py_func.__name__} is for compiled code; Python calls what `jit` "
            "or `entry` compiled"
        )


def inner(function=None, **options):
    """`jit` of a function that only compiled code calls.

    The code that takes apart the tuples of a Python call is larger than most functions, and numba compiles it for each
    of them.
    """
    if function is None:
        return functools.partial(inner, **options)
    made = jit(function, no_cpython_wrapper=True, **options)
    if isinstance(made, CPUDispatcher):  # where compilation is turned off, a plain function
        made.__class__ = Inner
    return made


kernel = functools.partial(inner, _nrt=False)
"""`inner` of a function that borrows all its arrays: it makes none and returns none.

Other functions count references, at every call to every array of every tuple that they are given: 90 atomic operations
where a round's scratch is passed on, 0.4 us, several times a round. Where it still shows that a call copies every
number of these tuples, about 200 in 50 ns, functions are compiled into their callers: `inline="always"` where there is
one caller, which saves compiling them by themselves, `forceinline=True` where there are several.
"""

entry = functools.partial(jit, _nrt=False)
"""`kernel` of a function that Python calls."""
