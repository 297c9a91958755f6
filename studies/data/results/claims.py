"""Judge the paper's key insights, stated as testable claims, by runs of each pair.

A claim has parts: differences of test Pass@1 with 95% t intervals, measured once per seed (paired, since designs share
their random numbers). Two verdicts are given, and never mixed:

held to the pair's own published numbers
    A part is reproduced where its interval lies within d ± 0.02 of the difference d that the paper reports for this
    pair, and above 0 where the claim promises a gain. A part without a reported number is judged as below. This is the
    only verdict that is called "reproduced".
held to the paper's range
    A part is within it where its interval lies inside the range that the paper gives over its pairs. Pairs and
    quantities without published numbers have this verdict alone.

A part fails where its interval lies outside, and is undecided where it contains an edge. A claim holds where all parts
do and fails where one does. Both verdicts are shown beside those for shuffled labels: designs permuted within the pair,
SHUFFLES times. A verdict that more than half of the shuffles reach says little, and no tally counts it. Intervals are
not corrected for the number of claims. The paper's own numbers are judged by the same rules. Slacks and thresholds are
ours.
"""

from collections.abc import Iterable

import numpy as np
import pandas as pd

from rftlab.studies.data.paper.experiments import BASELINE, EXPERIMENTS, label
from rftlab.studies.data.results.endpoints import Measured, measure_pair, reported_by_paper, shuffled
from rftlab.studies.data.results.stats import interval
from rftlab.studies.data.results.verdicts import Claim, ClaimFinding, Part, joint_verdict, judged, measure

ROUNDING = 0.01
"""Slack of the paper's ranges, which are differences of two numbers rounded to 0.01."""
SAME = 0.02
"""Largest difference of two results that match: one standard error of a difference on GSM8K's test set."""
STILL = 0.02
"""Gain below which the baseline has not moved a pair."""
SLIGHT = 0.04
"""Gain that the paper calls slight, for a pair that the baseline does not move."""
PACE = 0.5
"""Least correlation at which train and test move together. The paper gives no number."""

_CELLS = {e.name: [label(cell) for cell in e.cells] for e in EXPERIMENTS.values()}
_RAW = label(BASELINE)
_SUPPORTED = _CELLS["advantage"][1]
_K8, _K64 = _CELLS["rollouts"][1], _CELLS["rollouts"][-1]
_B128 = _CELLS["batch"][-1]
_SPLITS, _REPLAYED = _CELLS["tradeoff"][:-1], _CELLS["tradeoff"][-1]
_B512, _B1024, _B2048 = _CELLS["ceiling"][1:]


def short_label(cell: str) -> str:
    """Return a cell's label without its estimator."""
    return cell.removesuffix("-paper_text").replace("-minimalist", " raw")


def _difference(m: Measured, after: str, before: str, low: float, high: float) -> Part:
    return measure(f"{short_label(after)} - {short_label(before)}", m.gain(after, before), low, high, (after, before))


def _best_less(m: Measured, cells: Iterable[str], before: str, high: float) -> Part:
    """Return the claim part that the best of several designs exceeds another one by at most `high`."""
    name, values = m.best(cells)
    values = values - m.of(before) if before in m.cells else values[..., :0]
    return measure(f"{short_label(name)} - {short_label(before)}", values, -np.inf, high, (name, before), tuple(cells))


def _matches(m: Measured, cells: list[str]) -> list[Part]:
    return [_difference(m, cell, cells[0], -SAME, SAME) for cell in cells[1:]]


def _tradeoff(m: Measured) -> list[Part]:
    return [
        _difference(m, _K8, _SPLITS[-1], 0.0, np.inf),
        _difference(m, _K8, _SPLITS[0], 0.0, np.inf),
        _best_less(m, _SPLITS, _K8, SAME),
    ]


def _ceiling(m: Measured) -> list[Part]:
    bend = (
        m.gain(_B512, _REPLAYED) - m.gain(_B2048, _B1024) if {_B512, _B1024} <= set(m.cells) else m.gain(_B512, _B1024)
    )
    return [
        _difference(m, _B2048, _REPLAYED, 0.01 - ROUNDING, 0.05 + ROUNDING),
        measure("gain 256 to 512 less 1024 to 2048", bend, 0.0, np.inf, (_REPLAYED, _B512, _B1024, _B2048)),
    ]


def _together(m: Measured) -> list[Part]:
    """Return the part on the correlation, over designs and evaluations, of the gains on train and on test between two
    evaluations. The mean gain over designs is subtracted: a rise of all runs is no link between the two."""
    name = "correlation of gains on train and test"
    if m.paths is None or m.paths[0].shape[-2] < 2:
        return [measure(name, m.test[..., :0, 0], PACE, np.inf)]
    train, test = np.broadcast_arrays(*(np.diff(path, axis=-1) for path in m.paths))
    there = np.isfinite(train) & np.isfinite(test)
    count = np.maximum(there.sum(axis=-2, keepdims=True), 1)
    x, y = (np.where(there, gains, 0.0) for gains in (train, test))
    x, y = (np.where(there, gains - gains.sum(axis=-2, keepdims=True) / count, 0.0) for gains in (x, y))
    with np.errstate(invalid="ignore"):
        correlations = (x * y).sum(axis=(-2, -1)) / np.sqrt((x * x).sum(axis=(-2, -1)) * (y * y).sum(axis=(-2, -1)))
    return [measure(name, correlations, PACE, np.inf)]


def _stuck(m: Measured) -> list[Part]:
    """Return the part on the gain of the best design of a stuck pair. It applies unless the baseline surely moves the
    pair. Where the baseline's mean gain is above STILL but its interval is not, the part and the verdict are open."""
    moved, best = interval(m.gain(_RAW, "base")), _best_less(m, m.designs, "base", SLIGHT + ROUNDING)
    values = np.where(np.asarray(moved.value > STILL)[..., None], np.nan, best.values)
    part = measure(best.name, values, best.low, best.high, best.cells, best.among, np.less_equal(moved.low, STILL))
    return [part._replace(note=f"the baseline gains {moved.value:+.3f}" if np.ndim(moved.value) == 0 else "")]


def _within(name: str, statement: str, after: str, before: str, low: float, high: float) -> Claim:
    """Return the claim that one design gains between low and high, rounded numbers of the paper, over another."""
    return Claim(name, statement, lambda m: [_difference(m, after, before, low - ROUNDING, high + ROUNDING)])


CLAIMS: tuple[Claim, ...] = (
    _within("1 baseline", "The minimalist baseline improves test Pass@1 by 0.00 to 0.60.", _RAW, "base", 0.00, 0.60),
    _within("2 advantage", "The group advantage adds 0.00 to 0.10.", _SUPPORTED, _RAW, 0.00, 0.10),
    _within("3 rollouts", "Rollouts 1 to 64 add 0.04 to 0.17.", _K64, _SUPPORTED, 0.04, 0.17),
    _within("4 batch size", "Batch 32 to 128 adds up to 0.05, and costs at most 0.02.", _B128, _K8, -0.02, 0.05),
    Claim(
        "5 trade-off",
        "At 256 rollouts a round the optimum is interior, near (32, 8), with (256, 1) below it.",
        _tradeoff,
    ),
    Claim(
        "5 fallback (ours)",
        "Our hypothesis, not the paper's: (256, 1) loses by its missing baseline, so a replay window raises it.",
        lambda m: [_difference(m, _REPLAYED, _SPLITS[-1], 0.0, np.inf)],
        source="",
    ),
    Claim(
        "6a replay, text",
        "Replayed rewards match (32, 8, 0) at 32 queries a round.",
        lambda m: _matches(m, _CELLS["replay_text"]),
        remark="The paper contradicts itself here. With seven fresh support rollouts (experiment 2) it ends at .48 .56 "
        ".65 .30 .31 .19, with (32, 8) at .56 .64 .71 .34 .33 .21 (Qwen, Llama, OLMo on GSM8K, then on MATH), and "
        "stale rewards cannot beat fresh ones. Its released scripts have the other reading, 256 rollouts a round (6b).",
    ),
    Claim(
        "6b replay, code",
        "Replayed rewards match (32, 8, 0) at 256 rollouts a round.",
        lambda m: _matches(m, _CELLS["replay_code"]),
    ),
    Claim("7 ceiling", "With replay, batch 256 to 2048 adds 0.01 to 0.05, with diminishing returns.", _ceiling),
    Claim(
        "8 train and test",
        "Along the runs, train and test Pass@1 gain at the same pace (correlation of 0.5, a threshold of ours).",
        _together,
    ),
    Claim(
        "9 stuck pairs",
        "A pair that the baseline does not move is moved only slightly by anything else, by 0.04.",
        _stuck,
    ),
)


def judge(curves: pd.DataFrame, pairs: list[str]) -> list[ClaimFinding]:
    """Return a finding for every claim and pair. `curves` must hold all seven experiments."""
    findings = []
    for name in pairs:
        measured, paper = measure_pair(curves, name), reported_by_paper(name)
        drawn = shuffled(measured)
        findings += [_find(claim, name, measured, drawn, paper) for claim in CLAIMS]
    return findings


def _find(claim: Claim, name: str, measured: Measured, drawn: Measured, paper: Measured | None) -> ClaimFinding:
    parts = claim.parts(measured)
    within = judged(parts, claim.parts(drawn))
    if paper is None:
        return ClaimFinding(claim, name, parts, within)
    told = claim.parts(paper)
    reported = [part for part in told if np.isfinite(part.measured.value) or not part.applies]
    if not reported:
        return ClaimFinding(claim, name, parts, within)
    held, shuffles = (_held(claim, runs, paper, told) for runs in (measured, drawn))
    return ClaimFinding(claim, name, parts, within, tuple(held), judged(held, shuffles), joint_verdict(reported))


def _held(claim: Claim, measured: Measured, paper: Measured, told: list[Part]) -> list[Part]:
    """Return the parts of a claim with the range accepted around the difference that the paper reports for this pair,
    measured on the same designs. Parts without a reported difference keep the range of the paper."""
    held = []
    for part, same, one in zip(claim.parts(measured), claim.parts(measured.only(paper.cells)), told, strict=True):
        d = round(float(one.measured.value), 2)
        low = max(d - SAME, 0.0) if part.low >= 0 else d - SAME
        reported = np.isfinite(d) and not one.with_itself
        held.append(same._replace(low=low, high=d + SAME, published=d) if reported else part)
    return held
