"""The theory section of the report: statements with formulas, measured numbers, verdicts, corrections of the
literature and figures."""

import re
import tempfile
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from markupsafe import Markup, escape

from rftlab.studies.report.chart import Drawn
from rftlab.studies.report.report import draw, template
from rftlab.studies.theory import figures
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


class Figure(NamedTuple):
    """A figure of the section: its name, how it is drawn, and what the reader should see in it."""

    name: str
    draw: Callable[[], Drawn]
    title: str
    caption: str


FIGURES: tuple[Figure, ...] = (
    Figure(
        "theory-weights",
        figures.weights_figure,
        "GRPO favours very easy and very hard contexts (T3, T4, D3).",
        "Dividing by the group's standard deviation multiplies a context's gradient by W(p). Groups of 2 weigh all "
        "contexts alike, large groups favour the extremes.",
    ),
    Figure(
        "theory-variance",
        figures.variance_figure,
        "Where the best split of a budget into contexts and rollouts lies (T13, T14, D1).",
        "Variance of the gradient of N = BK rollouts, K of each context, with pass rates spread over contexts as "
        "named. Lines are leave-one-out, squares single rollouts with the raw reward; the filled mark of a case is its "
        "least variance. ν² is the squared norm of the score in directions that no reward depends on: it moves the "
        "optimum to larger groups.",
    ),
    Figure(
        "theory-plateau",
        figures.plateau_figure,
        "How long a plateau lasts (T19, T20).",
        "Time to learn one task from base pass rate p₀. Raw rewards need 1/p₀, GRPO with endless groups p₀^(−1/2), "
        "the natural gradient ln(1/p₀). With K = 8 GRPO is faster by a constant factor only.",
    ),
    Figure(
        "theory-replay",
        figures.replay_figure,
        "How many past visits a replayed baseline should use (T17, D2).",
        "Mean squared error of the average of past rewards as an estimate of the present pass rate, 4 rollouts a "
        "visit, by drift of the pass rate per visit; dots mark the best window.",
    ),
    Figure(
        "theory-regret",
        figures.regret_figure,
        "A few batches are enough if they grow (T26, T28).",
        "Worst regret over √(T log 2T) of a two-armed bandit whose policy changes only between batches; flat is the "
        "best possible rate. Equal batches, that is a constant batch size, lose as soon as the first one is longer "
        "than T needs.",
    ),
)


def theory_section(results: list[Result], folder: Path | None = None, facts: list[JudgedFact] | None = None) -> str:
    """HTML of the section, figures inside; with a `folder` they are also written there as svg, png and csv.

    facts: those of `rftlab.studies.theory.facts`, where their runs are there.
    """
    groups = grouped(results)
    with tempfile.TemporaryDirectory() as scratch:
        place = folder or Path(scratch)
        drawn = [(figure, draw(place, figure.name, figure.draw())) for figure in FIGURES]
    return template("theory.html.j2").render(
        groups=groups,
        total=len(results),
        counts=Counter(result.verdict for result in results),
        corrections=[result for members in groups.values() for result in members if result.check.corrects],
        figures=drawn,
        is_saved=folder is not None,
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
