"""Import the internals of numba that compiled code needs. No other file imports from `numba.core`, and an error of one
line names what a version lacks.

numba documents `numba.extending`, `numba.types` and `numba.config`; the parts listed here may disappear in any release.
"""

from importlib import import_module

import numba

from rftlab.shared.plumbing.errors import check

PARTS = {
    "dispatcher": "numba.core.registry.CPUDispatcher",
    "cgutils": "numba.core.cgutils",
    "event": "numba.core.event",
    "caching": "numba.core.caching",
}
OPTIONS = ("_nrt", "no_cfunc_wrapper", "no_cpython_wrapper", "forceinline")
"""Options of `njit` that numba does not document."""


def _find(path: str):
    """Return a module, or an attribute of a module, by its path; None where there is none."""
    module, _, name = path.rpartition(".")
    try:
        return import_module(path)
    except ImportError:
        pass
    try:
        return getattr(import_module(module), name, None)
    except ImportError:
        return None


def _missing(parts: dict) -> list[str]:
    options = _find("numba.core.cpu.CPUTargetOptions")
    return [PARTS[name] for name, part in parts.items() if part is None] + [
        f"the option {name} of njit" for name in OPTIONS if not hasattr(options, name)
    ]


_found = {name: _find(path) for name, path in PARTS.items()}
_absent = _missing(_found)
check(
    not _absent,
    f"numba {numba.__version__} lacks {', '.join(_absent)}, which compiled code needs; allowed: the version in "
    "constraints.txt",
)
CPUDispatcher, cgutils, event, caching = _found.values()
