"""The command line of `rftlab train`: one run of a language model."""

from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Annotated

import tyro
from rich.console import Console
from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn, TimeRemainingColumn
from rich.table import Table

from llm.config import LLMRun
from llm.tracking import Kind, tracker_of
from shared.errors import check
from studies.cli_common import NEEDS_LLM, PlanFlags, has_llm, peek
from studies.cli_run import check_filter, start_of
from studies.endpoints import SPLITS
from studies.language import cost_table
from studies.pairs import start_at
from studies.questions import evaluated_on, on_whole_sets
from studies.runner import long_form

PAIR = "tiny-mix97"


@dataclass(frozen=True)
class Train:
    """One run of a language model: `rftlab train --preset rloo --design.rounds 200 --seed 1`.

    By default a small transformer that is pre-trained from a seed on sums modulo 97 (minutes on a CPU); --pair names another. Kill it at any moment: the same
    command goes on from the last checkpoint. Curve, metrics, checkpoints and every rollout lie in FOLDER.
    """

    folder: Path = Path("results/train")
    """Where the run lies; a folder belongs to one configuration."""
    preset: str = "grpo"
    """Estimator that the --design.estimator flags start from (`rftlab estimators` lists them)."""
    pair: str = PAIR
    """Model-dataset pair whose run the other flags start from."""
    tracker: Kind = "none"
    """Where measurements are shown as well; the package of that name must be installed."""
    whole_sets: bool = False
    """Evaluate on all training and unseen questions, as in the paper, whatever --evaluation.train-subset and --evaluation.test-subset say."""
    quiet: bool = False
    """No progress bar (for logs)."""
    plan: Annotated[PlanFlags, tyro.conf.arg(name="")] = field(default_factory=PlanFlags)
    """Whether to show the cost alone."""
    run: Annotated[LLMRun, tyro.conf.arg(name="")] = field(default_factory=lambda: start_at(PAIR, "llm"))
    """The run."""

    def execute(self, console: Console) -> int:
        """Train, and print the curve; or show the plan."""
        run = on_whole_sets(self.run) if self.whole_sets else self.run
        check_filter(run.design)
        if self.plan.dry_run:
            from studies.plan_show import show_run

            return 0 if show_run(console, run, self.plan) else 1
        check(has_llm(), f"rftlab train {NEEDS_LLM}")
        from llm.train import Report, train

        track = tracker_of(self.tracker, self.folder)
        columns = (SpinnerColumn(), TextColumn("{task.description}"), BarColumn(), TimeElapsedColumn(), TimeRemainingColumn())
        with Progress(*columns, console=console, disable=self.quiet, transient=True) as bar:
            task = bar.add_task("starting", total=run.design.rounds)

            def evaluated(done: int, found: dict[str, float]) -> None:
                bar.update(task, description=" ".join(f"{name} {found[name]:.3f}" for name in ("train_pass_at_1", "test_pass_at_1")))
                track(done, found)

            report = Report(
                rounds=lambda done: bar.update(task, completed=done),
                evaluated=evaluated,
                remark=lambda text: console.print(text, style="yellow", markup=False),
                pretraining=lambda step, rate: bar.update(task, description=f"reading, step {step}: validation Pass@1 {rate:.3f}"),
            )
            outcome = train(run, self.folder, report)
        _show(console, outcome.curve)
        rates = {split: getattr(outcome.curve, f"{split}_pass_at_1")[-1:] for split in SPLITS}
        console.print(evaluated_on(run, rates), markup=False, highlight=False)
        console.print(cost_table(long_form(run.task.name, run.design, outcome.curve, outcome.metrics)))
        if outcome.diverged_at is not None:
            console.print(f"diverged after {outcome.diverged_at} rounds", style="red")
        console.print(f"run: {self.folder}", markup=False, soft_wrap=True)
        return 0


def _show(console: Console, curve) -> None:
    table = Table(box=None)
    names = {
        "round": "round",
        "rollouts": "rollouts",
        "tokens": "tokens",
        "seconds": "seconds",
        "train_pass_at_1": "train Pass@1",
        "test_pass_at_1": "test Pass@1",
    }
    names |= {"reward": "reward", "kl": "KL", "zero_signal_fraction": "no signal"}
    for title in names.values():
        table.add_column(title, justify="right", overflow="fold")
    for row in zip(*(getattr(curve, name) for name in names), strict=True):
        table.add_row(*(f"{value}" if isinstance(value.item(), int) else f"{value:.3f}" for value in row))
    console.print(table)


def parse_train(arguments: list[str]) -> Train:
    """The command of the arguments after `train`; `--preset` and `--pair` decide what the other flags start from."""
    name, pair = peek(arguments, "--preset", "grpo"), peek(arguments, "--pair", PAIR)
    start = start_at(pair, "llm")
    run = replace(start, design=replace(start_of(name), rounds=start.design.rounds, eval_every=start.design.eval_every))
    return tyro.cli(Train, prog="rftlab train", args=arguments, default=Train(preset=name, pair=pair, run=run), config=(tyro.conf.AvoidSubcommands,))
