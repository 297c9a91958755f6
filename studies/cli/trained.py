"""The commands about language models: train, rollouts, export, status."""

from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Annotated

import tyro
from rich.console import Console

from rftlab.llm.config import LLMRun
from rftlab.llm.tracking import Kind
from rftlab.shared.design import Design
from rftlab.shared.plumbing.errors import check, check_count, check_finite
from rftlab.studies.cli.common import (
    TINY_PAIR,
    LLMFlags,
    PlanFlags,
    RewardFlags,
    check_named,
    llm_flags,
    parse_abridged,
    peek,
)
from rftlab.studies.cli.simulate import check_filter, preset_design
from rftlab.studies.console.table import say
from rftlab.studies.data.paper.pairs import start_at
from rftlab.studies.data.runs.limits import NEEDS_LLM, Order, has_llm


@dataclass(frozen=True)
class Train(RewardFlags):
    """Train one language model.

        rftlab train --preset rloo --rounds 200 --seed 1

    By default a small transformer that is pre-trained from a seed on sums modulo 97 (minutes on a CPU); --pair names
    another. Kill it at any moment: the same command goes on from the last checkpoint. Curve, metrics, checkpoints and
    every rollout lie in FOLDER.

    --help shows the flags that most runs change, --help-all all of them.
    """

    folder: Path = Path("results/train")
    """Folder of the run; it belongs to one configuration."""
    preset: str = "grpo"
    """Estimator that the --estimator flags start from (`rftlab estimators` lists them)."""
    pair: str = TINY_PAIR
    """Model-dataset pair whose run the other flags start from."""
    tracker: Kind = "none"
    """Program that shows the measurements as well; the package of that name must be installed."""
    show_every: int = 0
    """Rounds from one print of the best and the worst response to the next. 0: none is printed."""
    stop_on_alarm: bool = False
    """End the run, with a checkpoint, at the first sign of trouble that `rftlab diagnose` knows."""
    fill: bool = False
    """On a GPU, take the fastest settings of --compute that fit its memory, as --dry-run plans them. Settings that you
    name stay."""
    named: tyro.conf.Suppress[tuple[str, ...]] = ()
    """Fields of `compute` that the command line names."""
    whole_sets: bool = False
    """Evaluate on all training and unseen questions, as in the paper, whatever --evaluation.train-subset and
    --evaluation.test-subset say."""
    quiet: bool = False
    """No progress bar (for logs)."""
    plan: Annotated[PlanFlags, tyro.conf.arg(name="")] = field(default_factory=PlanFlags)
    """Whether to show the cost alone."""
    seed: int = 0
    """Seed of the order of prompts, of every sampled token and of adapters."""
    design: Annotated[Design, tyro.conf.arg(name="")] = field(default_factory=Design)
    """The design."""
    flags: Annotated[LLMFlags, tyro.conf.arg(name="")] = field(default_factory=LLMFlags)
    """The rest of the run."""

    def __post_init__(self):
        check_count("show_every", self.show_every, 0)

    @property
    def run(self) -> LLMRun:
        """The run that the flags describe. Raises UserError where they do not go together."""
        start = replace(start_at(self.pair, "llm"), design=self.design, seed=self.seed)
        return self.flags.changed(replace(start, reward_timeout=self.reward_timeout))

    def execute(self, console: Console) -> int:
        """Train, and print the curve; or show the plan."""
        from rftlab.studies.data.paper.questions import on_whole_sets

        run = on_whole_sets(self.run) if self.whole_sets else self.run
        check_filter(run.design)
        rewards = self.given()
        if self.fill:
            from rftlab.studies.cli.execute.plan import fill_memory

            run = fill_memory(console, run, self.named, self.plan, self.folder)
        if self.plan.dry_run:
            from rftlab.studies.cli.execute.plan import show_run

            return 0 if show_run(console, run, self.plan) else 1
        check(has_llm(), f"rftlab train {NEEDS_LLM}")
        from rftlab.studies.cli.execute.train_model import train_model

        train_model(console, run, self.folder, self.tracker, self.quiet, rewards, self.show_every, self.stop_on_alarm)
        return 0


COMPUTE = "__compute."
"""Start of the flags about memory and speed, with underscores for hyphens; a flag may be typed with either."""


def parse_train(arguments: list[str]) -> Train:
    """Parse the arguments after `train`. `--preset` and `--pair` decide the defaults of the other flags. Raises
    SystemExit after printing the help: `--help` shows the flags of SHOWN, `--help-all` every flag."""
    name, pair = peek(arguments, "--preset", "grpo"), peek(arguments, "--pair", TINY_PAIR)
    start = start_at(pair, "llm")
    design = replace(preset_design(name), rounds=start.design.rounds, eval_every=start.design.eval_every)
    words = [word.partition("=")[0].replace("-", "_") for word in arguments]
    named = tuple(word[len(COMPUTE) :].removeprefix("no_") for word in words if word.startswith(COMPUTE))
    default = Train(preset=name, pair=pair, design=design, flags=LLMFlags(**llm_flags(start)), named=named)
    return parse_abridged(Train, "rftlab train", arguments, default)


@dataclass(frozen=True)
class ShowRollouts:
    """Show what a run sampled, the lowest rewards first.

    Or, with --by changed, the questions that changed most.

        rftlab rollouts results/train
        rftlab rollouts results/train --by changed --groups 3
        rftlab rollouts results/train --by round --first-round 60 --most-reward 0

    A group is the responses to one prompt in one round. Texts of models and of data are shown as they are, with what a
    terminal would obey written out.
    """

    run: tyro.conf.Positional[Path]
    """Folder of `rftlab train`, or of a run of a study; it may still be running."""
    by: Order = "worst"
    """Order of groups. worst: lowest mean reward first. changed: questions by the change of their mean reward from the
    first visit to the last. round: in order."""
    groups: int = 5
    """Groups, or questions, that are shown."""
    responses: int = 4
    """Responses of each group that are shown, the best and the worst."""
    first_round: int | None = None
    """First round that is shown."""
    last_round: int | None = None
    """Last round that is shown."""
    least_reward: float | None = None
    """Lowest reward of a response that is shown."""
    most_reward: float | None = None
    """Highest reward of a response that is shown."""
    prompt: int | None = None
    """Number of the only prompt that is shown."""
    letters: int = 300
    """Largest number of letters of a text that are shown."""

    def __post_init__(self):
        for name in ("groups", "responses", "letters"):
            check_count(name, getattr(self, name))
        check_named(self, ("first_round", "last_round", "prompt"), check_count, 0)
        check_named(self, ("least_reward", "most_reward"), check_finite)
        check(
            None in (self.first_round, self.last_round) or (self.first_round or 0) <= (self.last_round or 0),
            f"first_round = {self.first_round}; allowed: at most last_round = {self.last_round}",
        )

    def execute(self, console: Console) -> int:
        """Print the groups."""
        from rftlab.studies.cli.execute.show_rollouts import RecordFilter, show_rollouts

        wanted = RecordFilter(self.first_round, self.last_round, self.least_reward, self.most_reward, self.prompt)
        show_rollouts(console, self.run, wanted, self.by, self.groups, self.responses, self.letters)
        return 0


@dataclass(frozen=True)
class Export:
    """Write a trained model as a Hugging Face folder.

        rftlab export results/train my-model

    Weights in float32, configuration, tokenizer with its chat template, generation settings, and a card with the design
    and the curve. transformers, vLLM and others load it. A run with adapters gives a PEFT adapter, or with --merge the
    whole model.
    """

    run: tyro.conf.Positional[Path]
    """Folder of `rftlab train`."""
    folder: tyro.conf.Positional[Path]
    """A new folder for the model."""
    round: int | None = None
    """Round of the checkpoint; the last if left out."""
    merge: bool = False
    """Write adapters into the weights of the whole model."""

    def __post_init__(self):
        check_named(self, ("round",), check_count, 0)

    def execute(self, console: Console) -> int:
        """Write the folder, and say what is in it."""
        check(has_llm(), f"rftlab export {NEEDS_LLM}")
        from rftlab.llm.export import export
        from rftlab.llm.stored import stored_run

        def remark(text: str) -> None:
            console.print(text, style="yellow", markup=False, highlight=False)

        done = export(stored_run(self.run), self.folder, self.round, self.merge, remark)
        say(console, f"model after round {done}: {self.folder}")
        return 0


@dataclass(frozen=True)
class Status:
    """Show how far studies and trained runs are.

    Prints the runs that are done, running and to do, and the time left, also while they run.
    """

    results: Path = Path("results")
    """Results folder of `rftlab reproduce`, or a folder with runs of `rftlab train`."""
    follow: bool = False
    """Keep printing a line for every round that ends, until no language model runs there."""

    def execute(self, console: Console) -> int:
        """Print the tables."""
        from rftlab.studies.cli.execute.status import follow_rounds, show_status

        show_status(console, self.results)
        if self.follow:
            follow_rounds(console, self.results)
        return 0
