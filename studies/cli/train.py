"""The command line of `rftlab train`: one run of a language model."""

from contextlib import nullcontext
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Annotated, Any

import tyro
from rich.console import Console

from rftlab.llm.config import LLMRun
from rftlab.llm.tracking import Kind
from rftlab.shared.design import Design
from rftlab.shared.plumbing.errors import check
from rftlab.studies.cli.common import PlanFlags, peek
from rftlab.studies.cli.llm_flags import LLMFlags, RewardFlags, flags_of
from rftlab.studies.cli.run import check_filter, start_of
from rftlab.studies.data.paper.pairs import start_at
from rftlab.studies.data.runs.limits import NEEDS_LLM, has_llm

PAIR = "tiny-mix97"
HELP, HELP_ALL = ("-h", "--help"), "--help-all"
SHOWN = {
    "Train": (
        *("folder", "preset", "pair", "tracker", "seed", "plan", "design", "flags"),
        *("reward", "reward_weights", "reward_timeout"),
    ),
    "PlanFlags": ("dry_run", "gpu"),
    "Design": ("batch_size", "rollouts", "rounds", "eval_every"),
    "LLMFlags": ("task", "model", "optimizer", "compute", "lora"),
    "TaskConfig": ("name", "source", "test_source", "own"),
    "Model": ("source",),
    "AdamW": ("learning_rate",),
    "Compute": ("engine",),
    "LoRA": ("rank",),
}
"""Fields by class whose flags `rftlab train --help` shows; a class that is not here shows all of its own."""


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
    """Where the run lies; a folder belongs to one configuration."""
    preset: str = "grpo"
    """Estimator that the --estimator flags start from (`rftlab estimators` lists them)."""
    pair: str = PAIR
    """Model-dataset pair whose run the other flags start from."""
    tracker: Kind = "none"
    """Where measurements are shown as well; the package of that name must be installed."""
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
        if self.plan.dry_run:
            from rftlab.studies.cli.execute.plan import show_run

            return 0 if show_run(console, run, self.plan) else 1
        check(has_llm(), f"rftlab train {NEEDS_LLM}")
        from rftlab.studies.cli.execute.train_model import train_model

        train_model(console, run, self.folder, self.tracker, self.quiet, rewards)
        return 0


def parse_train(arguments: list[str]) -> Train:
    """The command of the arguments after `train`; `--preset` and `--pair` decide what the other flags start from.
    Raises SystemExit after printing the help: `--help` shows the flags of SHOWN, `--help-all` every flag."""
    name, pair = peek(arguments, "--preset", "grpo"), peek(arguments, "--pair", PAIR)
    start = start_at(pair, "llm")
    design = replace(start_of(name), rounds=start.design.rounds, eval_every=start.design.eval_every)
    default = Train(preset=name, pair=pair, design=design, flags=LLMFlags(**flags_of(start)))
    abridged = HELP_ALL not in arguments and any(word in arguments for word in HELP)
    arguments = [HELP[1] if word == HELP_ALL else word for word in arguments]
    with _abridged() if abridged else nullcontext():
        config = (tyro.conf.AvoidSubcommands,)
        return tyro.cli(Train, prog="rftlab train", args=arguments, default=default, config=config)


def _abridged() -> tyro.constructors.ConstructorRegistry:
    """Return tyro's rules, changed so that help leaves out the flags that are not in SHOWN."""
    registry, entered = tyro.constructors.ConstructorRegistry(), [False]
    suppressed: Any = tyro.conf.Suppress

    @registry.struct_rule
    def leave_out(info: tyro.constructors.StructTypeInfo) -> tyro.constructors.StructConstructorSpec | None:
        shown = SHOWN.get(getattr(info.type, "__name__", ""))
        if shown is None or entered[0]:
            return None
        entered[0] = True  # so that tyro's own rule answers
        spec: Any = registry.get_struct_spec(info)
        entered[0] = False
        hidden = {each.name: suppressed[each.type] for each in spec.fields if each.name not in shown}
        return replace(spec, fields=tuple(replace(each, type=hidden.get(each.name, each.type)) for each in spec.fields))

    return registry
