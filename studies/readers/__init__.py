"""Training logs of other programs, read as runs in our terms: rounds, splits, metrics, and what is known of the
design."""

from rftlab.studies.readers.read import read_logs
from rftlab.studies.readers.run import ImportedRun, KnownDesign, RawRun
from rftlab.studies.readers.store import read_collection

__all__ = ["ImportedRun", "KnownDesign", "RawRun", "read_collection", "read_logs"]
