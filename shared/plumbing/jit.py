"""Decorators for all compiled functions, and the folder of their cache.

numba's disk cache looks only at the file of the function that it loads: after an edit of a jitted function, a cached
caller in another file keeps running the old code. So the cache folder is named by a hash of every source file that
holds jitted code, and an edit anywhere starts an empty cache. The folder is chosen here, before any function is
decorated. Below it a function is found by its module, not by the place of its file, so that a checkout, a wheel and a
copy with equal sources share what was compiled.

Compiling takes seconds to two minutes without any output, so a line on standard error announces it.
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
"""Purpose of compiled functions by the beginning of their module's name; the longest match counts."""


def compile_purpose(module: str) -> str | None:
    """Return the purpose of a module's compiled functions, or None for a module outside the package."""
    return next(
        (purpose for start, purpose in PURPOSES.items() if module == start or module.startswith(start + ".")), None
    )


COLLECTION = 50_000, 20, 20
"""Thresholds of Python's garbage collector while numba compiles. With the usual ones it takes 5 to 7% of the time."""


class Announcer(event.Listener):
    """Listener that announces compilation once for each purpose, and makes garbage collection rare meanwhile. numba
    does not report functions that are in its cache."""

    def __init__(self, cache: Path | None):
        self.cache, self.inside = cache, 0
        self.said: set[str] = set()
        self.collection = gc.get_threshold()

    def on_start(self, event):
        """Handle the start of a compilation; nested ones count as parts of it."""
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
        """Handle the end of a compilation."""
        self.inside -= 1
        if self.inside == 0:
            gc.set_threshold(*self.collection)


_SOURCES = tuple(Path(__file__).resolve().parents[2] / package for package in ("shared", "sim"))


def source_hash() -> str:
    """Return a hash of every source file that may hold jitted code, in a fixed order."""
    digest = hashlib.sha256()
    for folder in _SOURCES:
        for path in sorted(folder.rglob("*.py")):
            digest.update(path.relative_to(folder).as_posix().encode() + b"\0" + path.read_bytes() + b"\0")
    return digest.hexdigest()[:16]


def _choose_cache() -> Path | None:
    """Return the folder for compiled code, or None where none can be written; then every process compiles anew."""
    try:
        folder = Path(os.environ.get("NUMBA_CACHE_DIR") or cache_folder("numba")) / source_hash()
        folder.mkdir(parents=True, exist_ok=True)
    except (OSError, UserError):
        return None
    return folder if os.access(folder, os.W_OK) else None


CACHE_FOLDER = _choose_cache()


class SourceLocator(caching.UserProvidedCacheLocator):
    """Locator of cached functions for numba: the cache folder, named by a hash of the sources, and the function's
    package."""

    def __init__(self, py_func, py_file):
        super().__init__(py_func, py_file)
        package = py_func.__module__.removeprefix("rftlab.").rpartition(".")[0]
        self._cache_path = str(Path(numba_config.CACHE_DIR) / package)

    @classmethod
    def from_function(cls, py_func, py_file):
        """Return None for a function outside `shared` and `sim`, for which numba keeps its usual cache."""
        ours = any(folder in Path(py_file).resolve().parents for folder in _SOURCES)
        return super().from_function(py_func, py_file) if ours else None

    def get_source_stamp(self):
        """Return the same stamp for all files, because the folder's name already identifies the sources."""
        return ""


if CACHE_FOLDER is not None:
    numba_config.CACHE_DIR = str(CACHE_FOLDER)
    caching.CacheImpl._locator_classes.insert(0, SourceLocator)

event.register("numba:compile", Announcer(CACHE_FOLDER))

jit = functools.partial(
    numba.njit, cache=CACHE_FOLDER is not None, nogil=True, error_model="numpy", _nrt=True, no_cfunc_wrapper=True
)


class Inner(CPUDispatcher):
    """A compiled function without a Python wrapper. Calling it from Python raises TypeError, where it would otherwise
    crash."""

    def __call__(self, *args, **kwargs):
        """Raise TypeError."""
        raise TypeError(
            f"{self.py_func.__module__}.{self.py_func.__name__} is for compiled code; Python calls what `jit` "
            "or `entry` compiled"
        )


def inner(function=None, **options):
    """Compile, as `jit` does, a function that only compiled code calls.

    The wrapper that unpacks the tuples of a Python call is larger than most functions, and numba compiles one for each.
    """
    if function is None:
        return functools.partial(inner, **options)
    made = jit(function, no_cpython_wrapper=True, **options)
    if isinstance(made, CPUDispatcher):  # where compilation is turned off, a plain function
        made.__class__ = Inner
    return made


kernel = functools.partial(inner, _nrt=False)
"""`inner` without reference counts, for a function that neither makes nor returns arrays.

Other functions count references at every call, for every array of every tuple argument. Passing a round's scratch takes
90 atomic operations or 0.4 us, several times a round. A call also copies every number of these tuples, about 200 in 50
ns. Where that matters, functions are compiled into their callers: `inline="always"` where there is one caller, which
saves compiling them separately, and `forceinline=True` where there are several.
"""

entry = functools.partial(jit, _nrt=False)
"""`kernel` for a function that Python calls."""
