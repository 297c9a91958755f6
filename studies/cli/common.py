"""Flags that several commands share."""

from collections.abc import Callable, Iterable
from contextlib import nullcontext
from dataclasses import dataclass, field, fields, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

import tyro

from rftlab.llm.config import AdamW, Compute, Evaluation, LLMRun, LoRA, Model
from rftlab.llm.rewards.load import SECONDS
from rftlab.llm.tasks.config import TaskConfig
from rftlab.shared.plumbing.errors import check, check_count
from rftlab.studies.data.runs.limits import check_threads

if TYPE_CHECKING:
    from rftlab.llm.rewards.load import Function, NamedReward

Command = TypeVar("Command")
TINY_PAIR = "tiny-mix97"
"""Default pair of commands about language models."""


HELP, HELP_ALL = ("-h", "--help"), "--help-all"
SHOWN = {
    "Train": (
        *("folder", "preset", "pair", "tracker", "show_every", "stop_on_alarm", "fill", "seed", "plan"),
        *("design", "flags", "reward", "reward_weights", "reward_timeout"),
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
"""Fields by class whose flags `--help` of train and pilot shows; a class that is not here shows all of its own."""


@dataclass(frozen=True)
class Common:
    """Options of every command that runs something."""

    results: Path = Path("results")
    """Results folder; finished runs in it are not run again."""
    threads: int = 0
    """Threads; 0 means all cores. Results do not depend on it."""
    quiet: bool = False
    """No progress bars (for logs)."""

    def __post_init__(self):
        check_threads(self.threads)


@dataclass(frozen=True)
class PlanFlags:
    """Options of a command that can show what it would cost."""

    dry_run: bool = False
    """Print memory, tokens and hours of what would run, and run nothing; needs neither GPU nor download. Status 1
    where it does not fit."""
    gpu: Annotated[str | None, tyro.conf.arg(metavar="A100-40|A100-80|H100|H200|measured[:FILE]")] = None
    """GPU of a dry run; the one at hand if left out. measured: with the constants of a report of `make gpu-check`,
    results/gpu-check.json unless a file is named."""
    prompt_tokens: int | None = None
    """Mean tokens of a prompt that a dry run assumes; the task's usual ones if left out."""
    response_tokens: int | None = None
    """Mean tokens of a response; the task's usual ones if left out."""

    def __post_init__(self):
        for name in ("gpu", "prompt_tokens", "response_tokens"):
            given = getattr(self, name)
            check(given is None or self.dry_run, f"{name} = {given}; allowed: with --dry-run")
        check_named(self, ("prompt_tokens", "response_tokens"), check_count)


def check_named(command: Any, names: Iterable[str], rule: Callable[..., None], *limits: float, **bounds: float) -> None:
    """Check those values of a command that are not None by a rule of rftlab.shared.plumbing.errors, which raises
    UserError for the first that breaks it."""
    for name in names:
        value = getattr(command, name)
        if value is not None:
            rule(name, value, *limits, **bounds)


def peek(arguments: list[str], flag: str, default: str) -> str:
    """Return the value of a flag before the command line is parsed as a whole; the last one where it is repeated, as in
    the parser."""
    value = default
    for i, argument in enumerate(arguments):
        if argument == flag and i + 1 < len(arguments):
            value = arguments[i + 1]
        elif argument.startswith(flag + "="):
            value = argument.split("=", 1)[1]
    return value


@dataclass(frozen=True)
class LLMFlags:
    """All of an `LLMRun` but its design and its seed, each to change."""

    task: TaskConfig = field(default_factory=TaskConfig)
    """Task and its problems, by default the pair's."""
    model: Model = field(default_factory=Model)
    """Model, by default the pair's."""
    optimizer: AdamW = field(default_factory=AdamW)
    """Update rule, by default the pair's."""
    evaluation: Evaluation = field(default_factory=Evaluation)
    """The measurements of an evaluation."""
    compute: Compute = field(default_factory=Compute)
    """Device, sampler and sizes of the pieces of work."""
    lora: LoRA = field(default_factory=LoRA)
    """Low-rank adapters that are trained in place of all weights."""
    temperature: float = 1.0
    """Divisor of the policy's logits, where it samples and where it is trained."""
    top_p: float = 1.0
    """Training rollouts are sampled from the likeliest tokens with this sum of probabilities. This and the next two
    need --estimator.correction.kind."""
    top_k: int = 0
    """Training rollouts are sampled from so many likeliest tokens; 0 is all."""
    min_p: float = 0.0
    """Training rollouts are sampled from tokens with at least this share of the likeliest one's probability."""
    max_mismatch: float | None = None
    """Largest mean difference between the sampler's and the trainer's log-probabilities of a round;
    None: 1e-3 in fp32, 0.06 in bf16."""
    mask_truncated: bool = False
    """Whether responses that were cut at --model.max-response-length are left out of the update, as TRL's
    mask_truncated_completions does; their rewards stay in the baselines."""
    checkpoint_every: int = 0
    """Rounds between two checkpoints; divides eval_every; 0 means eval_every."""
    checkpoints_kept: int = 2
    """Checkpoints that stay; the plan of --dry-run says what disk they take."""

    def changed(self, start: LLMRun) -> LLMRun:
        """Return a run with the values of these flags."""
        return replace(start, **llm_flags(self))


@dataclass(frozen=True)
class RewardFlags:
    """Rewards to train on in place of the task's."""

    reward: Annotated[tuple[str, ...], tyro.conf.arg(metavar="FILE.py:FUNCTION [...]")] = ()
    """Functions of your own that are trained on, in place of the task's strict reward. Naming a file runs it."""
    reward_weights: tuple[float, ...] = ()
    """Weights of these functions in the sum; 1 each if left out."""
    reward_timeout: float = SECONDS
    """Seconds that a call of one of these functions may take."""

    @cached_property
    def loaded(self) -> "dict[NamedReward, Function]":
        """Reward functions that the flags name. Raises UserError for those that cannot be loaded."""
        from rftlab.llm.rewards.load import loaded, name_rewards

        check(
            bool(self.reward) or not self.reward_weights,
            "--reward-weights without --reward; allowed: both, or neither",
        )
        return loaded(name_rewards(self.reward), self.reward_weights or None) if self.reward else {}

    def given(self) -> dict[str, Any]:
        """Return these rewards as keywords of `rftlab.llm.train.train`."""
        if not self.loaded:
            return {}
        return {"reward": [*self.loaded.values()], "reward_weights": [named.weight for named in self.loaded]}


def llm_flags(run: LLMRun | LLMFlags) -> dict:
    """Return the values of the flags, or of the fields of a run with the same names."""
    return {flag.name: getattr(run, flag.name) for flag in fields(LLMFlags)}


def parse_abridged(kind: type[Command], prog: str, arguments: list[str], default: Command) -> Command:
    """Parse the arguments of a command. Raises SystemExit after printing the help: `--help` shows the flags of SHOWN,
    `--help-all` every flag."""
    abridged = HELP_ALL not in arguments and any(word in arguments for word in HELP)
    arguments = [HELP[1] if word == HELP_ALL else word for word in arguments]
    with _abridged() if abridged else nullcontext():
        return tyro.cli(kind, prog=prog, args=arguments, default=default, config=(tyro.conf.AvoidSubcommands,))


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
