"""Claims about reinforcement fine-tuning of pre-trained models that the public runs can test, each with a verdict.

A claim has parts, each a quantity with an interval and the range in which the claim wants it; verdicts are those of
rftlab.studies.data.results.claims. Where a cell was repeated, the interval is Welch's over runs. Where it was run once,
the interval of a difference is that of unintended repeats (rftlab.studies.analysis.public.repeats): wide, and honest
about it. Intervals are not corrected for the number of claims. No part: the source cannot test it as it is.
"""

from collections.abc import Callable

import numpy as np
import pandas as pd

from rftlab.studies.analysis.public.axes import at, left_out
from rftlab.studies.analysis.public.repeats import SIX_HOURS, PairNoise, single_interval, without_repeat
from rftlab.studies.analysis.public.store import score_rows
from rftlab.studies.data.results.claims import SAME
from rftlab.studies.data.results.stats import interval, mean
from rftlab.studies.data.results.verdicts import Claim, ClaimFinding, Judgement, Part, joint_verdict

ROLLOUTS = 40_000
"""Rollouts that every run of PODS has spent before it ends."""
ROUNDS = 840
"""Rounds that every run of the compared cells of PODS has finished."""
LAST = 5
"""Evaluations over which two single runs are compared: the last that both have."""
COLLAPSED = ("shibuki/lr7e-5", "shibuki/lr2e-4")
"""Learning rates that collapse or stall, as their curves show."""
_REFERENCE = "shibuki/lr4e-5"


def _cells(after: str, before: str, axis: str, x: float, low: float, high: float) -> Callable:
    """Two cells of PODS at the same point of an axis, on GSM8K."""

    def parts(curves: pd.DataFrame, noise: PairNoise) -> list[Part]:
        rows = score_rows(curves, "gsm8k")
        cells = without_repeat(rows["run_id"])
        sides = [at(rows[cells == f"pods/gsm8k-{name}"], axis, x) for name in (after, before)]
        note = f"{sides[0].size} and {sides[1].size} runs"
        return [Part(f"{after} − {before}", mean(sides[0]).less(mean(sides[1])).interval(), low, high, note=note)]

    return parts


def _singles(*pairs: tuple[str, str], low: float, high: float) -> Callable:
    """Pairs of single runs, over the last evaluations that both have."""

    def parts(curves: pd.DataFrame, noise: PairNoise) -> list[Part]:
        table = score_rows(curves).pivot(index="round", columns="run_id", values="value")
        return [_single(table, after, before, noise, low, high) for after, before in pairs]

    return parts


def _single(table: pd.DataFrame, after: str, before: str, noise: PairNoise, low: float, high: float) -> Part:
    differences = (table[after] - table[before]).dropna().iloc[-LAST:]
    name = " − ".join(run.partition("/")[2] for run in (after, before))
    note = f"a run each, noise of {noise.pairs} pairs"
    return Part(name, single_interval(float(differences.mean()), noise), low, high, note=note)


def rate_points(curves: pd.DataFrame, collapsed: bool) -> pd.DataFrame:
    """Test scores after round 0 of the runs whose learning rate alone differs: run_id, round, value and rate; those
    that collapse only where asked."""
    rows = score_rows(curves)
    rows = rows[rows["run_id"].str.startswith("shibuki/lr") & (rows["round"] > 0)]
    rows = rows if collapsed else rows[~rows["run_id"].isin(COLLAPSED)]
    return rows.assign(rate=rows["run_id"].str.removeprefix("shibuki/lr").astype(float))


def _one_axis(curves: pd.DataFrame, noise: PairNoise) -> list[Part]:
    rows = rate_points(curves, collapsed=False)
    y, rate, steps = (rows[name].to_numpy(float) for name in ("value", "rate", "round"))
    errors = [left_out(x, y, rate) for x in (steps, rate * steps)]
    gains = errors[0] - errors[1]
    name = "error of a left-out rate, by steps less by rate × steps"
    return [Part(name, interval(gains), 0.0, np.inf, note=f"{gains.size} learning rates")]


def _nothing(curves: pd.DataFrame, noise: PairNoise) -> list[Part]:
    return []


def _shibuki(after: str, before: str) -> tuple[str, str]:
    return f"shibuki/{after}", f"shibuki/{before}"


_BORROWED = "The noise is that of shibukizero's repeats, of the same base model on other problems."
CLAIMS: tuple[Claim, ...] = (
    Claim(
        "a baseline",
        "A group baseline beats the raw reward.",
        _singles((_REFERENCE, "shibuki/no-baseline"), low=0.0, high=np.inf),
        "shibukizero",
        "The baseline comes with division by the deviation; see b.",
    ),
    Claim(
        "a baseline",
        "A group baseline beats the raw reward.",
        _singles(("kaip598/baseline", "kaip598/no-baseline"), low=0.0, high=np.inf),
        "kaip598",
        _BORROWED,
    ),
    Claim(
        "b deviation",
        "Dividing by the group's deviation changes the end by at most 0.02.",
        _singles((_REFERENCE, "shibuki/no-std"), low=-SAME, high=SAME),
        "shibukizero",
    ),
    Claim(
        "b deviation",
        "Dividing by the group's deviation changes the end by at most 0.02.",
        _nothing,
        "kaip598",
        "The run without the deviation has 100 steps, the reference 200: not at equal budget.",
    ),
    Claim(
        "c collapse",
        "Too large a learning rate ruins a run: 7e-5 (stalls at 0.2) and 2e-4 (falls to 0) end below 4e-5.",
        _singles(*((name, _REFERENCE) for name in COLLAPSED), low=-np.inf, high=0.0),
        "shibukizero",
        "5e-5 does not collapse; where between it and 7e-5 the edge lies, one seed does not tell.",
    ),
    Claim(
        "c rate × steps",
        "Learning curves of different rates meet on the axis rate × steps.",
        _one_axis,
        "shibukizero",
        "Of rates that do not collapse, picked by their curves. Errors of left-out rates are not quite independent.",
    ),
    Claim(
        "c small rate",
        "After equal steps a rate of 2e-5 is ahead of 5e-6.",
        _singles(("kaip598/lr-2e-5", "kaip598/lr-5e-6"), low=0.0, high=np.inf),
        "kaip598",
        _BORROWED,
    ),
    Claim(
        "d equal steps",
        f"After {ROUNDS} steps, 64 responses a prompt beat 16 (16 trained on).",
        _cells("n64-m16", "n16-m16", "round", ROUNDS, 0.0, np.inf),
        "pods",
    ),
    Claim(
        "d equal steps, more",
        f"After {ROUNDS} steps, 256 responses match 64 within 0.02.",
        _cells("n256-m16", "n64-m16", "round", ROUNDS, -SAME, SAME),
        "pods",
    ),
    Claim(
        "d equal rollouts",
        f"After {ROLLOUTS:,} rollouts, 16 responses a prompt are ahead of 256: more updates.",
        _cells("n16-m16", "n256-m16", "rollouts", ROLLOUTS, 0.0, np.inf),
        "pods",
    ),
    Claim(
        "d equal rollouts, 64",
        f"After {ROLLOUTS:,} rollouts, 64 responses match 16 within 0.02.",
        _cells("n64-m16", "n16-m16", "rollouts", ROLLOUTS, -SAME, SAME),
        "pods",
    ),
    Claim(
        "d equal seconds",
        "After six hours, 64 responses a prompt beat 16 (16 trained on).",
        _cells("n64-m16", "n16-m16", "seconds", SIX_HOURS, 0.0, np.inf),
        "pods",
        "n = 16 loses the format late; Pass@1 does not ask for it.",
    ),
    Claim(
        "d equal seconds, more",
        "After six hours, 256 responses match 64 within 0.02.",
        _cells("n256-m16", "n64-m16", "seconds", SIX_HOURS, -SAME, SAME),
        "pods",
    ),
    Claim(
        "d selection",
        "Of 64 responses the 16 of largest variance beat 16 at random, after six hours.",
        _cells("n64-m16", "n64-m16-random", "seconds", SIX_HOURS, 0.0, np.inf),
        "pods",
    ),
    Claim(
        "d best alone",
        "Training on the best 16 of 64 responses alone ends below 16 at random.",
        _cells("n64-m16-maxreward", "n64-m16-random", "seconds", SIX_HOURS, -np.inf, 0.0),
        "pods",
    ),
    Claim(
        "e updates",
        "At equal rounds, four updates a round on mini-batches beat one.",
        _singles(("shibuki/offpolicy-broad-e2-tb128", _REFERENCE), low=0.0, high=np.inf),
        "shibukizero",
        "Compared over rounds 20 to 40.",
    ),
    Claim(
        "e re-use",
        "Eight or sixteen passes over the whole batch collapse; as many updates on mini-batches do not.",
        _singles(
            _shibuki("offpolicy-broad-e8-tb256", "offpolicy-broad-e2-tb64"),
            _shibuki("offpolicy-broad-e16-tb256", "offpolicy-broad-e2-tb32"),
            low=-np.inf,
            high=0.0,
        ),
        "shibukizero",
        "At the reference's learning rate, 4e-5.",
    ),
    Claim(
        "e clip",
        "With four passes, clipping at 0.2 beats no clipping.",
        _singles(("kaip598/offpolicy-k4-clip", "kaip598/offpolicy-k4-noclip"), low=0.0, high=np.inf),
        "kaip598",
        _BORROWED,
    ),
)


def find(claim: Claim, parts: list[Part]) -> ClaimFinding:
    """What these parts say of a claim. Labels of a source's cells are not shuffled."""
    return ClaimFinding(claim, claim.source, parts, Judgement(joint_verdict(parts)))


def judge_source(source: str, curves: pd.DataFrame, noise: PairNoise) -> list[ClaimFinding]:
    """A finding for every claim about a source, from its curves and the noise of single runs."""
    return [find(claim, claim.parts(curves, noise)) for claim in CLAIMS if claim.source == source]
