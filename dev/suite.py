"""Make the suite's frozen anchors, its table of record, and the page that shows it.

python -m dev.suite anchors                  # studies/assets/suite_anchors.csv: once for each version
python -m dev.suite record FOLDER 3          # studies/assets/suite_record.csv: all cards, or those named next; goes on
python -m dev.suite page                     # docs/suite.md and docs/suite.png from the record
"""

import sys
import textwrap
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pandas as pd
from rich.console import Console

from rftlab.shared.cards import preset
from rftlab.shared.design import Design
from rftlab.shared.plumbing.files import write_file
from rftlab.sim.config import FLIPS
from rftlab.sim.environments import build
from rftlab.sim.run import simulate
from rftlab.studies.console.table import write_numbers
from rftlab.studies.data.runs.runner import Worlds
from rftlab.studies.data.runs.store import open_store
from rftlab.studies.estimators.suite import scores
from rftlab.studies.estimators.suite.figure import suite_profile
from rftlab.studies.estimators.suite.run import run_cells
from rftlab.studies.estimators.suite.submission import find_card, suite_names
from rftlab.studies.estimators.suite.tasks import DESIGN, FIXED, PARTS, TASKS, VERSION, SuiteTask, task_point
from rftlab.studies.report.draw import picture

ROOT = Path(__file__).resolve().parents[1]
ASSETS, DOCS = ROOT / "studies" / "assets", ROOT / "docs"
SHOWN = ("reinforce", "grpo", "gspo", "pkpo")
"""Estimators with a colour in the page's figure."""
FIRST = (*SHOWN, "rloo", "dr_grpo", "grpo_verl", "best_minus_second", "dapo", "tis")
"""Estimators that run first, because the page shows or needs them."""
LEVEL = 0.03
"""Difference of mean cells below which two are tied; repeats of public runs differ by 0.045 to 0.08."""
MOST, SEEDS, FACTORS = 256, 2, (0.5, 1.0, 2.0, 4.0)


def clean(task: SuiteTask) -> SuiteTask:
    """Return a task without lag, queue, noise and flips."""
    off = {name: value for name, value in task.environment.items() if name not in ("reward_noise", *FLIPS)}
    return task._replace(environment={**off, "sticky_flips": False}, lag=0, every=1)


def anchor_row(task: SuiteTask) -> dict[str, object]:
    """Return both anchors of a task: the untrained policy, and the best rate of a run with 16 times the rollouts."""
    size = {**DESIGN, **task.design}
    size["rollouts"] = min(16 * size["rollouts"], MOST)
    name = "dr_grpo" if size.get("epochs", 1) > 1 else "rloo"
    design = Design(**size, estimator=preset(name), eval_every=size["rounds"] // PARTS)
    best, at, zero = -np.inf, 0.0, np.nan
    world = build(task_point(clean(task), design, 1.0, 0).simulation.environment)
    for factor in FACTORS:
        values = []
        for seed in range(SEEDS):
            outcome = simulate(task_point(clean(task), design, factor, seed).simulation, world)
            rollouts = int(outcome.curve.rollouts[-1])
            values.append(scores.cell(task, outcome.curve, outcome.metrics, rollouts))
            known = outcome.curve.test_pass_at_1 if outcome.metrics is None else outcome.metrics[task.metric]
            zero = float(np.asarray(known)[0])
        if np.mean(values) > best:
            best, at = float(np.mean(values)), factor
    print(f"{task.name}: {zero:.3f}, {best:.3f} at rate x {at:g}", flush=True)
    return {"version": VERSION, "task": task.name, "zero": zero, "one": best, "rate": at, "estimator": name}


def make_anchors(names: Sequence[str]) -> None:
    """Write the anchors of this version."""
    with ThreadPoolExecutor(2) as pool:
        rows = list(pool.map(anchor_row, [TASKS[name] for name in names or TASKS]))
    table = pd.DataFrame(rows)
    print(table.to_string(index=False))
    if not names:
        write_numbers(ASSETS / "suite_anchors.csv", table.round(6))


def make_record(folder: Path, seeds: int, wanted: Sequence[str]) -> None:
    """Run all cards or the wanted ones, where the store in `folder` has no such run yet, and write their table. Cards
    that were not reached keep their earlier rows."""
    console, worlds, path = Console(), Worlds(), ASSETS / "suite_record.csv"
    names = suite_names()
    for name in wanted or sorted(names, key=lambda name: name not in FIRST):
        cells = run_cells(console, open_store(folder), find_card(name), seeds, worlds=worlds)
        table = scores.profile(cells).round(4).assign(version=VERSION)
        if path.exists():
            known = pd.read_csv(path)
            known = known[(known["version"] == VERSION) & known["estimator"].isin(names)]
            table = pd.concat([known[known["estimator"] != name], table])
        write_numbers(path, table.sort_values("estimator", key=lambda column: column.map(names.index), kind="stable"))
        print(name, len(cells), flush=True)


def real_rows() -> Sequence[Sequence[str]]:
    """Return rows for questions that real runs answered too: the real result, the suite's result, and whether these
    agree."""
    values = {(r.estimator, r.task, float(r.rate)): r.value for r in scores.suite_record().itertuples()}
    rows = []
    for fact in pd.read_csv(ASSETS / "suite_real.csv", keep_default_na=False).itertuples():
        a, b = ((getattr(fact, x), getattr(fact, f"task_{x}"), float(getattr(fact, f"rate_{x}"))) for x in "ab")
        difference = values.get(a, np.nan) - values.get(b, np.nan)
        says = "level" if abs(difference) < LEVEL else "above" if difference > 0 else "below"
        open_question = fact.real == "undecided" or np.isnan(difference)
        verdict = "undecided" if open_question else "agree" if says == fact.real else "disagree"
        tasks = ", ".join(dict.fromkeys((a[1], b[1])))
        numbers = f"{fact.numbers}; {fact.source}" if fact.source else fact.numbers
        rows.append(
            (
                fact.question,
                tasks,
                f"{fact.real}: {numbers}",
                "" if np.isnan(difference) else f"{says}: {difference:+.3f}",
                verdict,
            )
        )
    return rows


def markdown(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Return a table in Markdown."""
    lines = ["| " + " | ".join(row) + " |" for row in (columns, ["---"] * len(columns), *rows)]
    return "\n".join(lines)


def page_parts() -> dict[str, str]:
    """Return the parts of the page that come from the record, by the names of its marks."""
    known, anchors, real = scores.suite_record(), scores.anchors(), real_rows()
    counts = {word: sum(row[-1] == word for row in real) for word in ("agree", "disagree", "undecided")}
    decided = counts["agree"] + counts["disagree"]
    tasks = [
        (
            f"`{t.name}`",
            *(t.isolates, f"{t.rate:g}", str(t.seeds)),
            *(f"{end:.3f}" for end in anchors[t.name]),
            *(t.real, t.silent),
        )
        for t in TASKS.values()
    ]
    fixed = known[known["rate"] == FIXED].pivot(index="estimator", columns="task", values="score")
    best = scores.best_rows(known).pivot(index="estimator", columns="task", values="score")
    rows = []
    for name in dict.fromkeys(known["estimator"]):
        means = [f"{values.loc[name].mean():.2f}" for values in (fixed, best)]
        parts = [f"{score:.2f}" if score == score else "–" for score in fixed.loc[name, list(TASKS)]]
        rows.append([f"`{name}`", *means, *parts])
    return {
        "agreement": textwrap.fill(
            f"**{counts['agree']} of {decided} questions that real runs decide have the same answer here; "
            f"{counts['disagree']} have another, and {counts['undecided']} more are undecided.**",
            100,
        ),
        "tasks": markdown(("task", "isolates", "rate", "seeds", "0", "1", "stands for", "a score does not say"), tasks),
        "real": markdown(("question", "tasks", "real runs", "here", "verdict"), real),
        "scores": markdown(("estimator", "fixed", "best", *TASKS), rows),
    }


def written(text: str) -> str:
    """Return a page with its parts made from the record."""
    for name, part in page_parts().items():
        before, rest = text.split(f"<!-- {name} -->\n")
        after = rest.split(f"<!-- end of {name} -->")[1]
        text = f"{before}<!-- {name} -->\n{part}\n<!-- end of {name} -->{after}"
    return text


def main(arguments: Sequence[str]) -> None:
    """Run what the command line asks for."""
    what, *rest = arguments
    if what == "anchors":
        make_anchors(rest)
    elif what == "record":
        make_record(Path(rest[0]), int(rest[1]), rest[2:])
    else:
        known = scores.suite_record()
        chart, _ = suite_profile(known[known["estimator"].isin(SHOWN)], known)
        write_file(DOCS / "suite.png", picture(chart, "png", 110))
        write_file(DOCS / "suite.md", written((DOCS / "suite.md").read_text()).encode())


if __name__ == "__main__":
    main(sys.argv[1:])
