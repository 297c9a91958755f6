"""Flags of a run of a language model: the same in `rftlab run --level llm` and in `rftlab train`."""

from dataclasses import dataclass, field, fields, replace
from functools import cached_property
from typing import TYPE_CHECKING, Annotated, Any

import tyro

from rftlab.llm.config import AdamW, Compute, Evaluation, LLMRun, LoRA, Model
from rftlab.llm.rewards.config import SECONDS
from rftlab.llm.tasks.config import TaskConfig
from rftlab.shared.plumbing.errors import check

if TYPE_CHECKING:
    from rftlab.llm.rewards.load import LoadedReward


@dataclass(frozen=True)
class LLMFlags:
    """All of an `LLMRun` but its design and its seed, each to change."""

    task: TaskConfig = field(default_factory=TaskConfig)
    """The pair's problems."""
    model: Model = field(default_factory=Model)
    """The pair's model."""
    optimizer: AdamW = field(default_factory=AdamW)
    """The pair's update rule."""
    evaluation: Evaluation = field(default_factory=Evaluation)
    """What is measured."""
    compute: Compute = field(default_factory=Compute)
    """How the work is cut into pieces."""
    lora: LoRA = field(default_factory=LoRA)
    """Whether all weights are trained, or adapters beside them."""
    temperature: float = 1.0
    """Divides the logits of the policy, where it samples and where it is trained."""
    max_mismatch: float | None = None
    """Largest mean difference between the sampler's and the trainer's log-probabilities of a round;
    None: 1e-3 in fp32, 0.06 in bf16."""
    checkpoint_every: int = 0
    """Rounds between two checkpoints; divides eval_every; 0 means eval_every."""

    def changed(self, start: LLMRun) -> LLMRun:
        """A run with the values of these flags."""
        return replace(start, **flags_of(self))


@dataclass(frozen=True)
class RewardFlags:
    """What is trained on, where it is not the task's own reward."""

    reward: Annotated[tuple[str, ...], tyro.conf.arg(metavar="FILE.py:FUNCTION [...]")] = ()
    """Functions of your own that are trained on, in place of the task's strict reward. Naming a file runs it."""
    reward_weights: tuple[float, ...] = ()
    """Their parts in the sum, one for each; 1 each if left out."""
    reward_timeout: float = SECONDS
    """Seconds that a call of one may take."""

    @cached_property
    def loaded(self) -> "tuple[LoadedReward, ...]":
        """The functions. Raises UserError for those that cannot be had."""
        from rftlab.llm.rewards.load import loaded, name_rewards

        check(
            bool(self.reward) or not self.reward_weights,
            "--reward-weights without --reward; allowed: both, or neither",
        )
        return loaded(name_rewards(self.reward), self.reward_weights or None) if self.reward else ()

    def given(self) -> dict[str, Any]:
        """Keywords of `rftlab.llm.train.train`."""
        if not self.loaded:
            return {}
        return {
            "reward": [each.function for each in self.loaded],
            "reward_weights": [each.named.weight for each in self.loaded],
        }


def flags_of(run: LLMRun | LLMFlags) -> dict:
    """What the flags say, or are for a run."""
    return {flag.name: getattr(run, flag.name) for flag in fields(LLMFlags)}
