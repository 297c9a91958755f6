"""Evaluations that are too small for the difference that is claimed."""

import numpy as np

from rftlab.shared.evalstats import sampling_error
from rftlab.studies.analysis.diagnose.finding import Finding, Unjudged
from rftlab.studies.analysis.diagnose.observed import ObservedRun
from rftlab.studies.analysis.diagnose.thresholds import limit

KIND = "evaluation too small"


def visible(rate: float, questions: int) -> float:
    """The smallest difference of two Pass@1 that is seen: both measured on so many questions, once each."""
    return float(limit("seen") * np.sqrt(2) * sampling_error(rate, questions))


def evaluation_too_small(seen: ObservedRun) -> Finding | Unjudged | None:
    """Whether the evaluation can see the difference: the one that is asked for, else from first to last."""
    line = seen.first(("test", "pass_at_1"), least=2)
    if line is None:
        return Unjudged(KIND, "Pass@1 on a test set at two rounds or more")
    known = line.counts[np.isfinite(line.counts)]
    questions = seen.questions or (int(np.median(known)) if len(known) and np.median(known) >= 1 else None)
    if questions is None:
        return Unjudged(KIND, "how many questions the test set has: --questions N")
    first, last = float(line.values[0]), float(line.values[-1])
    rate, gain = float(np.clip((first + last) / 2, 0, 1)), last - first
    # a rate of 0 or 1 has no measured error; half an answer stands for it
    least = visible(float(np.clip(rate, 0.5 / questions, 1 - 0.5 / questions)), questions)
    wanted = abs(gain) if seen.claim is None else seen.claim
    if wanted > least:
        return None
    needed = int(np.ceil(2 * limit("seen") ** 2 * max(rate * (1 - rate), 1e-4) / max(wanted, 1e-3) ** 2))
    return Finding(
        KIND,
        "note",
        f"{questions} answers cannot show a difference of {wanted:.3f}",
        (
            f"Pass@1 {first:.3f} at round {line.rounds[0]}, {last:.3f} at round {line.rounds[-1]}",
            f"seen are differences above {least:.3f}; {max(wanted, 0.001):.3f} needs {needed} answers",
        ),
        f"{limit('seen'):g} standard errors of a difference of two rates",
        "more questions, or several answers to each; compare two models on the same questions, pair by pair",
    )
