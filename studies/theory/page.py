"""The theory section of the report: statements with formulas, measured numbers, verdicts, and corrections of the
literature."""

import re
from collections import Counter

from markupsafe import Markup, escape

from rftlab.studies.report.report import template
from rftlab.studies.theory.check import FAIL, INCONCLUSIVE, PASS
from rftlab.studies.theory.command import Result, grouped
from rftlab.studies.theory.facts.command import JudgedFact

SYMBOLS = {PASS: "✓", FAIL: "✗", INCONCLUSIVE: "?"}
FEW = 5
"""Comparisons of a check that are shown at once; the others unfold."""
NOTATION = {
    "p, q, u": (
        "pass rate of a context (a prompt) under the policy, q = 1 − p, and u = pq, the variance of its 0/1 reward"
    ),
    "K, B, N": "rollouts per context, contexts per batch, N = BK rollouts per update",
    "r, A, s": "reward of a rollout, its advantage, and its score ∇ log π; the gradient estimate is the mean of A s",
    "S": "number of successes among the K rollouts of a context",
    "W(p)": (
        "what an estimator multiplies the gradient of a context of pass rate p by: its expected gradient "
        "is W(p) ∇p; unbiased means W = 1"
    ),
    "G": "squared length of ∇p",
    "one-logit": "the model whose only parameter is logit p; its score is r − p",
    "tabular": "a softmax over A arms with one logit per arm; contexts share no parameters",
    "ρ": "share of the score's squared norm that lies in directions common to all contexts",
    "ν²": "squared norm of the score in directions on which no reward depends (style)",
    "ddof": "1 where the standard deviation divides by K − 1 (as GRPO's code does), 0 where it divides by K",
    "T, M, Δ": (
        "bandit statements: steps, batches, and the gap between the arms; regret R is the reward lost to the better arm"
    ),
}


def theory_section(results: list[Result], facts: list[JudgedFact] | None = None) -> str:
    """HTML of the section. facts: those of `rftlab.studies.theory.facts`, where their runs are there."""
    groups = grouped(results)
    return template("theory.html.j2").render(
        groups=groups,
        total=len(results),
        counts=Counter(result.verdict for result in results),
        corrections=[result for members in groups.values() for result in members if result.check.corrects],
        symbols=SYMBOLS,
        facts=facts,
        few=FEW,
        notation=NOTATION,
        scripts=scripts,
    )


def scripts(text: str) -> Markup:
    """Plain text as HTML, with the exponents of x^(...) and x^n raised and the index of x_n lowered."""
    safe = str(escape(text))
    while (raised := re.sub(r"\^\(((?:[^()]|\([^()]*\))*)\)", r"<sup>\1</sup>", safe)) != safe:
        safe = raised
    raised = re.sub(r"\^([−-]?\w+)", r"<sup>\1</sup>", safe)
    return Markup(re.sub(r"(?<![\w_])(\w)_([A-Za-z0-9]+)", r"\1<sub>\2</sub>", raised))
