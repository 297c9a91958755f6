"""The theory section of the report: statements with formulas, measured numbers, verdicts, corrections of the
literature and figures."""

import re
import tempfile
from collections import Counter
from collections.abc import Callable
from pathlib import Path

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
FIGURES: dict[str, Callable[[], Drawn]] = {
    "theory-weights": figures.weights_figure,
    "theory-variance": figures.variance_figure,
    "theory-plateau": figures.plateau_figure,
    "theory-replay": figures.replay_figure,
    "theory-regret": figures.regret_figure,
}
"""The figures of the section by name; their titles and captions stand in the template."""


def theory_section(results: list[Result], folder: Path | None = None, facts: list[JudgedFact] | None = None) -> str:
    """HTML of the section, figures inside; with a `folder` they are also written there as svg, png and csv.

    facts: those of `rftlab.studies.theory.facts`, where their runs are there.
    """
    groups = grouped(results)
    with tempfile.TemporaryDirectory() as scratch:
        place = folder or Path(scratch)
        drawn = {name: draw(place, name, figure()) for name, figure in FIGURES.items()}
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
        scripts=scripts,
    )


def scripts(text: str) -> Markup:
    """Plain text as HTML, with the exponents of x^(...) and x^n raised and the index of x_n lowered."""
    safe = str(escape(text))
    while (raised := re.sub(r"\^\(((?:[^()]|\([^()]*\))*)\)", r"<sup>\1</sup>", safe)) != safe:
        safe = raised
    raised = re.sub(r"\^([−-]?\w+)", r"<sup>\1</sup>", safe)
    return Markup(re.sub(r"(?<![\w_])(\w)_([A-Za-z0-9]+)", r"\1<sub>\2</sub>", raised))
