"""All checks of a run."""

from collections.abc import Callable

import numpy as np

from rftlab.studies.analysis.diagnose import collapse, evaluation, format_gain, length, progress, sampler, signal, step
from rftlab.studies.analysis.diagnose.finding import ORDER, Diagnosis, Finding, Unjudged
from rftlab.studies.analysis.diagnose.observed import ObservedRun, observe
from rftlab.studies.readers.run import ImportedRun

Check = Callable[[ObservedRun], Finding | Unjudged | None]
CHECKS: dict[str, Check] = {
    collapse.KIND: collapse.collapse,
    step.KIND: step.step_too_large,
    sampler.KIND: sampler.mismatch,
    signal.KIND: signal.no_signal,
    length.KIND: length.length_growing,
    progress.KIND: progress.noise_above_progress,
    progress.PLATEAU_KIND: progress.plateau,
    collapse.ENTROPY_KIND: collapse.entropy_gone,
    format_gain.KIND: format_gain.format_only,
    evaluation.KIND: evaluation.evaluation_too_small,
}
"""By kind; of findings that are equally grave the first here comes first."""


def diagnose(run: ImportedRun, questions: int | None = None, claim: float | None = None) -> Diagnosis:
    """What is going on in a run.

    questions: of an evaluation, where the log does not say. claim: the difference of Pass@1 that it should show, above
    0; from the first evaluation to the last where None.
    """
    seen = observe(run, questions, claim)
    with np.errstate(all="ignore"):  # values near the largest number: what overflows is no finding
        said = {kind: check(seen) for kind, check in CHECKS.items()}
    findings = sorted((found for found in said.values() if isinstance(found, Finding)), key=_grave)
    return Diagnosis(
        run.name,
        tuple(findings),
        tuple(kind for kind, found in said.items() if found is None),
        tuple(found for found in said.values() if isinstance(found, Unjudged)),
    )


def _grave(found: Finding) -> int:
    return ORDER.index(found.severity)
