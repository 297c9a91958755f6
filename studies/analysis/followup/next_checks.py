"""Run the next checks: noisy and graded rewards, staleness against the learning rate, and the size of the model.

Each check runs designs in variants of a simulated pair, and states claims about test Pass@1 after training. All but the
first, which is the paper's, were stated before their runs were made. Verdicts are those of
rftlab.studies.data.results.verdicts, beside those for shuffled labels of all runs of a check.
"""

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from operator import attrgetter
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pandas as pd
from rich.console import Console

from rftlab.shared.curve import SPLITS
from rftlab.shared.plumbing.files import write_file
from rftlab.shared.plumbing.folders import folder_below
from rftlab.sim.config import Simulation
from rftlab.studies.console.table import Table, put, say
from rftlab.studies.data.paper.experiments import FOLLOW_UPS, Experiment
from rftlab.studies.data.results.claims import SAME
from rftlab.studies.data.results.endpoints import Measured, shuffled
from rftlab.studies.data.results.stats import interval
from rftlab.studies.data.results.verdicts import FAILS, HOLDS, Claim, ClaimFinding, Part, judged, measure, tally
from rftlab.studies.data.runs import store
from rftlab.studies.data.runs.files import check_writable
from rftlab.studies.data.runs.points import Changes, RunSpec, changed
from rftlab.studies.report.chart import Drawn
from rftlab.studies.report.claims import found_words, range_words
from rftlab.studies.report.figures import tradeoff
from rftlab.studies.report.report import draw, template


class Section(NamedTuple):
    """Section of the page of a follow-up study."""

    name: str
    title: str
    text: str
    tables: list[Table]
    lines: tuple[str, ...] = ()
    figure: Drawn | None = None


def write_study_page(console: Console, root: Path, name: str, title: str, sections: list[Section], about: dict) -> Path:
    """Print the sections of a study, and write them with their figures to root/report-name. Returns the page's path."""
    folder = folder_below(root, f"report-{name}")
    check_writable(folder)
    figures = {one.name: draw(folder_below(folder, "figures"), one.name, one.figure) for one in sections if one.figure}
    for one in sections:
        for table in one.tables:
            put(console, one.title, table)
        for line in one.lines:
            say(console, line)
    page = template("followup.html.j2").render(title=title, sections=sections, figures=figures, about=about)
    write_file(folder / "report.html", page.encode())
    say(console, f"report: {folder / 'report.html'}")
    return folder / "report.html"


_MIDDLE = "(32, 8)"
Parts = Callable[[Measured], list[Part]]
_INTERIOR, _EDGES = ("(8, 32)", _MIDDLE, "(128, 2)"), ("(1, 256)", "(256, 1)")
_SPLITS = (_EDGES[0], *_INTERIOR, _EDGES[1])


Variant = Callable[[Simulation], Simulation]
"""Function that returns a run with some fields changed."""


def _variant(values: Changes, **factors: float) -> Variant:
    """Return a variant that sets fields to new values and multiplies others, by name, by a factor."""
    return lambda run: changed(run, {name: attrgetter(name)(run) * by for name, by in factors.items()} | values)


class NextCheck(NamedTuple):
    """Simulated designs in several variants, and claims about Pass@1 after training."""

    name: str
    title: str
    question: str
    axis: str
    runs: dict[tuple[str, str], tuple[Variant, str]]
    """Variant and split of every point of the figure, by its line and tick."""
    claims: dict[str, Parts]
    """Statement of each claim, and the function that returns the quantities that decide it."""


def _crossed(lines: dict[str, Variant], splits: tuple[str, ...]) -> dict[tuple[str, str], tuple[Variant, str]]:
    return {(line, split): (variant, split) for line, variant in lines.items() for split in splits}


def _gain(after: str, before: str, low: float, high: float) -> Parts:
    """Return the claim that one run (its line and tick) ends between low and high above another."""
    return lambda m: [measure(f"{after} - {before}", m.gain(after, before), low, high)]


def _middle(after: str, before: str, low: float, high: float) -> Parts:
    """Return the claim that at (32, 8) one line ends between low and high above another."""
    return _gain(f"{after} {_MIDDLE}", f"{before} {_MIDDLE}", low, high)


def _interior(line: str, m: Measured) -> list[Part]:
    """Return the claim parts that (32, 8) ends above both edges, (1, 256) and (256, 1)."""
    return [part for edge in _EDGES for part in _gain(f"{line} {_MIDDLE}", f"{line} {edge}", 0.0, np.inf)(m)]


def _best(name: str, line: str, splits: tuple[str, ...], than: tuple[str, ...], m: Measured) -> list[Part]:
    """Return the claim part that the best of some splits ends at most 0.02 above the best of others."""
    best, other = (m.best(f"{line} {split}" for split in some)[1] for some in (splits, than))
    return [measure(f"{line} {name}", best - other, -np.inf, SAME)]


def _stays(lines: dict[str, Variant]) -> Parts:
    return lambda m: [one for line in lines for one in _best("best split - (32, 8)", line, _INTERIOR, (_MIDDLE,), m)]


def _lag(rate: float, lag: int, low: float, high: float) -> Parts:
    return _gain(f"rate x {rate} lag {lag}", f"rate x {rate} lag 0", low, high)


_TOKENS: Changes = {"environment.answer_tokens": 2, "environment.n_answers": 4}
_NOISE = {f"noise {noise:g}": _variant({"environment.reward_noise": noise}) for noise in (0.0, 0.5, 1.0)}
_GRADED = {"0 or 1": _variant(_TOKENS), "graded": _variant({**_TOKENS, "environment.partial_credit": 0.5})}
_FEATURES = {f"{count} features": _variant({"environment.n_features": count}) for count in (112, 448, 896)}
_SHARP = {f"kappa x {factor}": _variant({}, **{"environment.kappa": factor}) for factor in (0.5, 1.5)}
_LAGS = {
    (f"rate x {rate}", f"lag {lag}"): (_variant({"sampler.lag": lag}, **{"optimizer.learning_rate": rate}), _MIDDLE)
    for rate in (0.25, 1, 4)
    for lag in (0, 4, 16)
}
_SPLIT_AXIS = "(batch size, rollouts)"

CHECKS: tuple[NextCheck, ...] = (
    NextCheck(
        "noise",
        "Noisy rewards",
        "Does the best split of 256 rollouts stay between the edges where every reward has normal noise?",
        _SPLIT_AXIS,
        _crossed(_NOISE, _SPLITS),
        {
            "Without noise (32, 8) beats (1, 256) and (256, 1).": partial(_interior, "noise 0"),
            "With noise 1 no split beats the better edge by 0.02: no interior optimum.": partial(
                _best, "best interior split - better edge", "noise 1", _INTERIOR, _EDGES
            ),
            "Noise 1 costs (32, 8) more than 0.02.": _middle("noise 1", "noise 0", -np.inf, -SAME),
        },
    ),
    NextCheck(
        "graded",
        "Graded rewards",
        "Does half a reward for partly right answers, here of two tokens, help?",
        _SPLIT_AXIS,
        _crossed(_GRADED, (_EDGES[0], _MIDDLE, _EDGES[1])),
        {
            "At (32, 8) graded ends no lower, within 0.02.": _middle("graded", "0 or 1", -SAME, np.inf),
            "With it (32, 8) beats (1, 256) and (256, 1).": partial(_interior, "graded"),
        },
    ),
    NextCheck(
        "lag",
        "Staleness and learning rate",
        "How many rounds may the sampler lag at (32, 8), and does that depend on the rate?",
        "rounds of lag",
        _LAGS,
        {
            "At a quarter of the rate a lag of 16 changes the end by at most 0.02.": _lag(0.25, 16, -SAME, SAME),
            "At the pair's rate a lag of 4 changes it by at most 0.02.": _lag(1, 4, -SAME, SAME),
            "At four times the rate a lag of 16 costs more than 0.02.": _lag(4, 16, -np.inf, -SAME),
        },
    ),
    NextCheck(
        "size",
        "Size of the model",
        "Does the best split depend on how many features there are to learn, or on how sharp the base policy is?",
        _SPLIT_AXIS,
        _crossed(_FEATURES | _SHARP, _INTERIOR),
        {
            "(32, 8) is within 0.02 of the best split with 112, 448 and 896 features.": _stays(_FEATURES),
            "So it is with half and 1.5 times the sharpness of the base policy.": _stays(_SHARP),
            "896 features end above 112 at (32, 8).": _middle("896 features", "112 features", 0.0, np.inf),
        },
    ),
)


def check_points(check: NextCheck, pair: str, start: Simulation, chosen: Experiment, seeds: int) -> list[list[RunSpec]]:
    """Return the runs of a check: a row per seed, in the order of `check.runs`. chosen: the experiment with the
    splits."""
    designs = dict(zip(chosen.ticks, chosen.cells, strict=True))
    return [
        [
            RunSpec(pair, replace(variant(start), design=designs[split], seed=seed))
            for variant, split in check.runs.values()
        ]
        for seed in range(seeds)
    ]


def measured_ends(root: Path, check: NextCheck, points: list[list[RunSpec]]) -> dict[str, Measured]:
    """Return Pass@1 after training on each split: rows of seeds, columns of runs and a base; nan where a run
    diverged."""
    stored = [[store.read(root, point) for point in row] for row in points]
    ends = {}
    for split in SPLITS:
        curves = [[_curve(one, split) for one in row] for row in stored]
        values = [[curve[-1] for curve in row] + [row[0][0]] for row in curves]
        ends[split] = Measured((*map(" ".join, check.runs), "base"), np.array(values))
    return ends


def _curve(stored: store.Stored | None, split: str) -> np.ndarray:
    """Return Pass@1 along a run on train or test; nan alone where the run diverged or is missing."""
    known = stored is not None and stored.diverged_at is None
    return getattr(stored.curve, f"{split}_pass_at_1") if stored and known else np.array([np.nan, np.nan])


def judge_check(check: NextCheck, pair: str, m: Measured) -> list[ClaimFinding]:
    """Return a finding for every claim of a check on a pair."""
    drawn = shuffled(m)
    return [
        ClaimFinding(Claim(check.name, said, parts), pair, parts(m), judged(parts(m), parts(drawn)))
        for said, parts in check.claims.items()
    ]


def check_section(check: NextCheck, ends: dict[str, Measured], findings: list[ClaimFinding]) -> Section:
    """Return the section of a check on the page: its figure, a table of ends, and a line for every claim."""
    rows = [
        {"experiment": check.name, "pair": line, "split": split, "tick": tick, "published": np.nan}
        | dict(zip(("mean", "low", "high"), interval(m.of(f"{line} {tick}")), strict=True))
        for split, m in ends.items()
        for line, tick in check.runs
    ]
    numbers = pd.DataFrame(rows).replace([np.inf, -np.inf], np.nan)
    panels, ticks = (list(dict.fromkeys(names)) for names in zip(*check.runs, strict=True))
    shown, lines = Table("test Pass@1", *ticks), []
    for line, own in numbers[numbers["split"] == "test"].groupby("pair", sort=False):
        shown.add(str(line), *(_ended(one.mean, one.high - one.mean) for one in own.itertuples()))
    for f in findings:
        parts = (f"{part.name}: {found_words(part)}, claimed {range_words(part.low, part.high)}" for part in f.parts)
        verdict = {HOLDS: "holds", FAILS: "fails"}.get(f.within.verdict, f.within.verdict)
        little = f" Shuffled labels reach this in {f.within.same:.0%}" + "; it says little." * f.within.little
        lines.append(f"{verdict}: {f.claim.statement} {'; '.join(parts)}.{little.rstrip('.')}.")
    cells = FOLLOW_UPS["next_checks"].cells[:1] * len(ticks)
    drawn = tradeoff(Experiment(check.name, "", "", check.axis, cells, tuple(ticks)), numbers, panels)
    return Section(check.name, check.title, check.question, [shown], tuple(lines), drawn)


def _ended(value: float, half: float) -> str:
    return f"{value:.3f}" + (f" ±{half:.3f}".replace("±0", "±") if half == half else "")


def count_words(findings: list[ClaimFinding]) -> str:
    """Return a sentence that counts the claims that hold, beside the count for shuffled labels."""
    counts = tally([f.within for f in findings]).said("claims hold", "it did not matter which run is which")
    return f"{counts}. Intervals are over seeds, and not corrected for the number of claims."
