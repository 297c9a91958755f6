"""The diagnosis of one run: findings with evidence, threshold and advice (docs/diagnose.md)."""

from rftlab.studies.analysis.diagnose.checks import CHECKS, diagnose
from rftlab.studies.analysis.diagnose.finding import THRESHOLDS, Diagnosis, Finding, Unjudged

__all__ = ["CHECKS", "THRESHOLDS", "Diagnosis", "Finding", "Unjudged", "diagnose"]
