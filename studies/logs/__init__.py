"""Training logs of other programs, read as runs in our terms: rounds, splits, metrics, and what is known of the
design."""

from rftlab.studies.logs.read import read_logs
from rftlab.studies.logs.run import ImportedRun, KnownDesign, RawRun
from rftlab.studies.logs.store import read_collection

__all__ = ["ImportedRun", "KnownDesign", "RawRun", "read_collection", "read_logs"]
