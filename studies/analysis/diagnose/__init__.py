"""Diagnose one run: findings with evidence, threshold and advice (docs/diagnose.md)."""

import unicodedata
from collections.abc import Callable

import numpy as np
from rich.console import Console

from rftlab.studies.analysis.diagnose import progress, stability
from rftlab.studies.analysis.diagnose.alarms import ALARM_CHECKS
from rftlab.studies.analysis.diagnose.observed import (
    ORDER,
    THRESHOLDS,
    Diagnosis,
    Finding,
    ObservedRun,
    Unjudged,
    observe,
)
from rftlab.studies.console.table import say
from rftlab.studies.readers.run import ImportedRun

Check = Callable[[ObservedRun], Finding | Unjudged | None]
CHECKS: dict[str, Check] = {
    stability.COLLAPSE: stability.collapse,
    stability.STEP: stability.step_too_large,
    stability.SAMPLER: stability.mismatch,
    progress.OUT_OF_REACH: progress.out_of_reach,
    progress.OVERFITTING: progress.overfitting,
    progress.NO_SIGNAL: progress.no_signal,
    progress.LENGTH: progress.length_growing,
    progress.NOISE: progress.noise_above_progress,
    progress.PLATEAU: progress.plateau,
    stability.ENTROPY_GONE: stability.entropy_gone,
    progress.FORMAT_ONLY: progress.format_only,
    progress.EVALUATION: progress.evaluation_too_small,
    **ALARM_CHECKS,
}
"""Checks by kind. Findings of equal severity are shown in this order."""


def diagnose(run: ImportedRun, questions: int | None = None, claim: float | None = None) -> Diagnosis:
    """Return the diagnosis of a run.

    questions: number in an evaluation, where the log does not say. claim: the difference of Pass@1 that it should show,
    above 0; None takes the difference between the first and the last evaluation.
    """
    seen = observe(run, questions, claim)
    with np.errstate(all="ignore"):  # values near the largest number overflow, which is no finding
        said = {kind: check(seen) for kind, check in CHECKS.items()}
    findings = [result for result in said.values() if isinstance(result, Finding)]
    return Diagnosis(
        run.name,
        tuple(sorted(findings, key=lambda finding: ORDER.index(finding.severity))),
        tuple(kind for kind, result in said.items() if result is None),
        tuple(result for result in said.values() if isinstance(result, Unjudged)),
    )


def show_diagnosis(console: Console, said: Diagnosis) -> None:
    """Print a diagnosis: one line, then findings, the most severe first, then checks that could not be made. Texts of
    logs are printed without markup, control characters as escapes."""
    lines = [said.verdict]
    for finding in said.findings:
        lines += ["", f"{finding.severity}: {finding.kind}: {finding.what}"]
        lines += [f"  seen       {sentence}" for sentence in finding.evidence]
        lines += [f"  threshold  {finding.threshold}", f"  try        {finding.advice}"]
    unjudged = [f"{row.kind}: needs {row.needs}" for row in said.unjudged]
    for title, rows in (("nothing found", said.clear), ("could not be judged", unjudged)):
        lines += ["", title, *(f"  {row}" for row in rows)] if rows else []
    for line in lines:
        say(console, "".join(c if unicodedata.category(c)[0] != "C" else ascii(c)[1:-1] for c in line))


__all__ = ["CHECKS", "THRESHOLDS", "Diagnosis", "Finding", "Unjudged", "diagnose"]
