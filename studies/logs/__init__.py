"""Training logs of other programs, read as runs in our terms: rounds, splits, metrics, and what is known of the
design.

Names are imported when they are first used: the tables of trainers' defaults below here are read by the command line,
which starts without pandas.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rftlab.studies.logs.read import read_logs as read_logs
    from rftlab.studies.logs.run import ImportedRun as ImportedRun
    from rftlab.studies.logs.run import KnownDesign as KnownDesign
    from rftlab.studies.logs.run import RawRun as RawRun
    from rftlab.studies.logs.store import read_collection as read_collection

_MODULES = {
    "ImportedRun": "run",
    "KnownDesign": "run",
    "RawRun": "run",
    "read_collection": "store",
    "read_logs": "read",
}
__all__ = list(_MODULES)


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_MODULES[name]}"), name)
