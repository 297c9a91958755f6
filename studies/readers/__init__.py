"""Read training logs of other programs as runs in rftlab's terms: rounds, splits, metrics, and the known design."""

from rftlab.studies.readers.read import read_logs
from rftlab.studies.readers.run import ImportedRun, KnownDesign, RawRun
from rftlab.studies.readers.store import read_collection

__all__ = ["ImportedRun", "KnownDesign", "RawRun", "read_collection", "read_logs"]
