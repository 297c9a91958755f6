"""Reports of made-up curves."""

from itertools import product

import numpy as np
import pandas as pd

from rftlab.shared.curve import Curve
from rftlab.studies.data.paper.experiments import EXPERIMENTS, distinct_cells, label
from rftlab.studies.data.results.endpoints import endpoint_table
from rftlab.studies.data.results.language import PHASES
from rftlab.studies.data.results.verdicts import Claim, ClaimFinding, Part, judged, measure
from rftlab.studies.report.report import ReportPart, script, write_report

CHOSEN = [EXPERIMENTS["baseline"], EXPERIMENTS["tradeoff"]]
PAIRS = ["qwen-gsm8k", "llama-gsm8k", "qwen-math"]
TINY = ["tiny-mix97", "tiny-mod97"]
HOSTILE = '"><script>alert(1)</script>'
ARXIV = "https://arxiv.org/abs/2601.22532"


def curves_of(pairs, seeds):
    """Made-up curves: three evaluations of every cell."""
    rng, rows = np.random.default_rng(7), []
    for pair, cell, seed, at in product(pairs, map(label, distinct_cells(CHOSEN)), range(seeds), (0, 1000, 2000)):
        train, test = rng.uniform(0.1, 0.9, 2)
        point = Curve(seed, at, at, at, 1.0, 0.5, train, test, 0.0, 0.0, 0.0, 1.0, train + 0.05, test + 0.05)
        rows.append((pair, cell, *point))
    return pd.DataFrame(rows, columns=["pair", "cell", *Curve._fields]).assign(planned_rounds=2000)


def with_metrics(curves):
    """Curves as those of language models: flexible Pass@1 is 0.1 above the strict one before training and equal to
    it after."""
    flexible = curves["test_pass_at_1"] + 0.1 * (curves["round"] == 0)
    phases = {f"{kind}_{phase}": at for at, phase in enumerate(PHASES, 1) for kind in ("seconds", "peak_mb")}
    return curves.assign(train_flexible=flexible, test_flexible=flexible, **phases)


def part(curves, text="plain", level="sim", **changes):
    pairs = list(dict.fromkeys(curves["pair"]))
    found = findings_of(pairs, text)
    return ReportPart(level, curves, endpoint_table(curves, CHOSEN, pairs), found, [text])._replace(**changes)


VALUES = {"reproduced": (0.05,), "not reproduced": (0.3,), "undecided": (0.0,), "not applicable": ()}
"""Differences that get a verdict where 0 to 0.1 is claimed; each is measured with two seeds, 0.002 apart."""


def parts_of(values, text="a < b", low=0.0, high=0.1) -> list[Part]:
    return [measure(f"{text} {i}", np.array([x - 0.001, x + 0.001]), low, high) for i, x in enumerate(values)]


def findings_of(pairs, text="a < b"):
    """Each verdict once per pair; of those that fail the first pair does more than is claimed, the second less, the
    third both. Shuffles reach none of them."""
    found, sides = [], ((0.3,), (-0.3,), (0.3, -0.3))
    for (i, values), (at, pair) in product(enumerate(VALUES.values()), enumerate(pairs)):
        claim = Claim(f"claim {i}", text, parts_of, remark="" if i else text)
        parts = parts_of(sides[at % 3] if values == (0.3,) else values, text)
        held, one = tuple(part._replace(published=0.1) for part in parts), judged(parts, [])
        found.append(ClaimFinding(claim, pair, parts, one, held, one))
    return found


def write(folder, curves, text="plain"):
    return write_report(folder, CHOSEN, part(curves, text), None, {"command": text, text: "1"}, [text])


def without_script(page: str) -> str:
    """A page without the one script that all share. Raises AssertionError where it has none, or two."""
    own = f"<script>{script()}</script>"
    assert page.count(own) == 1
    return page.replace(own, "")
