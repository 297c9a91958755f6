"""Sampler and trainer that give the same tokens other probabilities."""

import re

import numpy as np

from rftlab.studies.analysis.diagnose.finding import Finding, Unjudged
from rftlab.studies.analysis.diagnose.observed import Line, ObservedRun
from rftlab.studies.analysis.diagnose.robust import smooth
from rftlab.studies.analysis.diagnose.thresholds import limit

KIND = "sampler and trainer apart"
_LOGP = re.compile(
    r"mismatch|sampling/sampling_logp_difference/mean|(?:train/)?train_rollout_logprob_abs_diff"
    r"|rollout_corr/log_?prob_abs_diff(?:/mean)?"
)
"""Mean |difference| of log-probabilities: ours, TRL's, slime's, verl's."""
_PROBS = ("train", "rollout_probs_diff")


def mismatch(seen: ObservedRun) -> Finding | Unjudged | None:
    """Whether ratios are wrong before anything is learnt."""
    found = [line for (_, name), line in seen.lines.items() if _LOGP.fullmatch(name)]
    lines = [(line, "mismatch_logp", "log-probabilities") for line in found]
    probs = seen.first(_PROBS)
    lines += [(probs, "mismatch_probs", "probabilities")] if probs is not None else []
    lines = [each for each in lines if len(each[0]) >= 3]
    if not lines:
        return Unjudged(KIND, "rollout_probs_diff (verl), sampling_logp_difference (TRL), mismatch (rftlab)")
    evidence = [_evidence(line, what) for line, name, what in lines if _level(line) >= limit(name)]
    if not evidence:
        return None
    return Finding(
        KIND,
        "change",
        "sampler and trainer give the same tokens other probabilities",
        tuple(evidence),
        f"mean difference of log-probabilities {limit('mismatch_logp'):g}, probabilities {limit('mismatch_probs'):g}",
        "look at temperature, top-p and the weights the sampler holds; the same precision in both; "
        "truncated importance weights as a repair",
    )


def _level(line: Line) -> float:
    return float(np.max(smooth(np.abs(line.values))))


def _evidence(line: Line, what: str) -> str:
    values = smooth(np.abs(line.values))
    at = int(np.argmax(values))
    return f"{what} differ by {values[at]:.3g} on average about round {line.rounds[at]}, {values[0]:.3g} at the start"
