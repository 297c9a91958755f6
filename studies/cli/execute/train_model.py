"""One run of a language model with a bar, and its curve as a table."""

from pathlib import Path
from typing import Any

from rich.console import Console

from rftlab.llm.config import LLMRun
from rftlab.llm.tracking import Kind, make_tracker
from rftlab.llm.train import TrainingCallbacks, train
from rftlab.shared.curve import SPLITS, Curve
from rftlab.studies.console.table import Column, Table
from rftlab.studies.data.paper.questions import evaluated_on
from rftlab.studies.data.results.language import cost_table
from rftlab.studies.data.runs.progress import Bar
from rftlab.studies.data.runs.runner import long_form


def train_model(
    console: Console, run: LLMRun, folder: Path, tracker: Kind, quiet: bool, rewards: dict[str, Any]
) -> None:
    """Train in a folder, and print the curve. rewards: keywords of `train` about a user's functions."""
    track = make_tracker(tracker, folder)
    with Bar(console, quiet) as bar:
        task = bar.add_task("starting", total=run.design.rounds)

        def evaluated(done: int, measured: dict[str, float]) -> None:
            bar.update(
                task,
                description=" ".join(f"{name} {measured[name]:.3f}" for name in ("train_pass_at_1", "test_pass_at_1")),
            )
            track(done, measured)

        report = TrainingCallbacks(
            rounds=lambda done: bar.update(task, completed=done),
            evaluated=evaluated,
            remark=lambda text: console.print(text, style="yellow", markup=False),
            pretraining=lambda step, rate: bar.update(
                task, description=f"reading, step {step}: validation Pass@1 {rate:.3f}"
            ),
        )
        outcome = train(run, folder, report, **rewards)
    show_curve(console, outcome.curve)
    rates = {split: getattr(outcome.curve, f"{split}_pass_at_1")[-1:] for split in SPLITS}
    console.print(evaluated_on(run, rates), markup=False, highlight=False)
    console.print(cost_table(long_form(run.task.name, run.design, outcome.curve, outcome.metrics)))
    if outcome.diverged_at is not None:
        console.print(f"diverged after {outcome.diverged_at} rounds", style="red")
    console.print(f"run: {folder}", markup=False, soft_wrap=True)


MEASURED = {
    "round": "round",
    "rollouts": "rollouts",
    "tokens": "tokens",
    "seconds": "seconds",
    "train_pass_at_1": "train Pass@1",
    "train_flexible": "train flexible",
    "test_pass_at_1": "test Pass@1",
    "test_flexible": "test flexible",
}
"""Titles of what an evaluation measures."""
TRAINED = {"round": "round", "reward": "reward", "kl": "KL", "zero_signal_fraction": "no signal"}
"""Titles of means over the rounds since the evaluation before."""


def show_curve(console: Console, curve: Curve) -> None:
    """Print what evaluations measured, and what training did between them: two tables, each of 80 columns at most."""
    for titles in (MEASURED, TRAINED):
        table = Table(*(Column(title, align="right") for title in titles.values()), wrap="letters")
        for row in zip(*(getattr(curve, name) for name in titles), strict=True):
            table.add(*(f"{value}" if isinstance(value.item(), int) else f"{value:.3f}" for value in row))
        console.print(table)
