"""Train a language model with a progress bar, and print its curve as a table."""

from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console

from rftlab.llm.config import LLMRun, model_config
from rftlab.llm.tracking import Kind, make_tracker, read_rounds
from rftlab.llm.train import StopTraining, TrainingCallbacks, train
from rftlab.llm.training.trainer import Round
from rftlab.shared.curve import SPLITS, Curve
from rftlab.shared.plumbing.errors import plain
from rftlab.studies.analysis.diagnose.alarms import AlarmWatch
from rftlab.studies.cli.execute.show_rollouts import cut_text
from rftlab.studies.console.table import Column, Table
from rftlab.studies.data.paper.questions import evaluated_on
from rftlab.studies.data.results.language import cost_table
from rftlab.studies.data.runs.progress import Bar, live_line
from rftlab.studies.data.runs.runner import long_form
from rftlab.studies.readers.designs import read_design

SHOWN = 300
"""Letters of a response that are shown."""


def train_model(
    console: Console,
    run: LLMRun,
    folder: Path,
    tracker: Kind,
    quiet: bool,
    rewards: dict[str, Any],
    show_every: int = 0,
    stop_on_alarm: bool = False,
) -> None:
    """Train in a folder, and print the curve. rewards: keywords of `train` about a user's functions. show_every: rounds
    between two of which the best and the worst response are printed; 0: none. stop_on_alarm: end with a checkpoint
    where an alarm fires, and raise StopTraining."""
    track = make_tracker(tracker, folder)
    watch = AlarmWatch(read_design(model_config(run), "rftlab", None)[0], read_rounds(folder))
    with Bar(console, quiet) as bar:
        task = bar.add_task("starting", total=run.design.rounds)
        scores = [""]

        def evaluated(done: int, measured: dict[str, float]) -> None:
            scores[0] = f"test Pass@1 {measured['test_pass_at_1']:.3f}"
            bar.update(task, description=scores[0])
            track(done, measured)

        def after_round(done: Round, measured: dict[str, float]) -> None:
            bar.update(task, completed=done.number + 1, description=f"{scores[0]}, {live_line(measured)}")
            news = watch.news(measured)
            shown = {**measured, "alarms": len(watch.told)}
            track(done.number + 1, {f"round/{name}": value for name, value in shown.items()})
            for alarm in news:
                console.print(alarm, style="yellow", markup=False, highlight=False)
            if show_every and (done.number + 1) % show_every == 0:
                for line in sample_lines(done):
                    console.print(line, markup=False, highlight=False)
            if news and stop_on_alarm:
                raise StopTraining(
                    f"stopped after round {done.number + 1} by {news[0].partition(',')[0]}; the run is kept, and the "
                    "same command goes on with it"
                )

        report = TrainingCallbacks(
            measured=after_round,
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


def sample_lines(done: Round) -> list[str]:
    """Return the best and the worst response of a round, a line each."""
    rows = done.samples.new
    order = rows[np.argsort(-done.rewards[rows], kind="stable")]
    return [
        f"round {done.number + 1}, reward {done.rewards[row]:+.3f}: {plain(cut_text(done.samples.texts[row], SHOWN))}"
        for row in dict.fromkeys((order[0], order[-1]))
    ]


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
"""Titles of what an evaluation measures, by column of the curve."""
TRAINED = {"round": "round", "reward": "reward", "kl": "KL", "zero_signal_fraction": "no signal"}
"""Titles of means over the rounds since the previous evaluation, by column of the curve."""


def show_curve(console: Console, curve: Curve) -> None:
    """Print what evaluations measured, and what training did between them: two tables, each of 80 columns at most."""
    for titles in (MEASURED, TRAINED):
        table = Table(*(Column(title, align="right") for title in titles.values()))
        for row in zip(*(getattr(curve, name) for name in titles), strict=True):
            table.add(*(f"{value}" if isinstance(value.item(), int) else f"{value:.3f}" for value in row))
        console.print(table)
