"""The internals of numba that compiled code needs, in one place: no other file imports from `numba.core`, and an error
of one line names what a version lacks.

numba documents `numba.extending`, `numba.types` and `numba.config`; what stands here may go with any release.
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
"""Options of `njit` that its documentation leaves out."""


def _find(path: str):
    """A module, or what a module holds; None where there is none."""
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
