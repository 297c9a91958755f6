"""Measure r, phi and the other quantities of a pilot in the first rounds of a user's run of TRL, with a callback.

    trainer = GRPOTrainer(...)                          # or RftlabGRPOTrainer
    trainer.add_callback(MeasureNoise(trainer, "mine"))
    trainer.train()                                     # results/pilot/mine/run.json after 256 prompts

Right after a round's responses are scored, while the policy is the one that sampled them, the callback passes them
through the model again, prompt by prompt, and differentiates (studies/integrations/noise.py). Each prompt takes two
backward passes over half of its K responses with raw rewards and two with centred ones, and the memory of one more
gradient. Gradients of the run, its weights and its random numbers do not change. Written after TRL 1.16.
"""

import warnings
from functools import partial
from pathlib import Path
from typing import Any

from trl.trainer.callbacks import TrainerCallback

from rftlab.llm.losses.inputs import joined
from rftlab.llm.probe_run import GroupNoise, aside, measure_group
from rftlab.shared.plumbing.errors import UserError, check, check_count
from rftlab.studies.data.runs.store import open_store
from rftlab.studies.integrations.noise import QUESTIONS, write_run
from rftlab.studies.integrations.trl import MODEL_INPUTS, token_mask
from rftlab.studies.readers.store import check_name


class MeasureNoise(TrainerCallback):
    """Callback that measures the first `questions` prompts from round `first` on, and writes
    RESULTS/pilot/NAME/run.json.

    `rftlab predict --pair imported:NAME --pilot FILE` takes r and phi from it. In a run over several processes the main
    one measures its own prompts. Raises UserError for fewer than four responses to a prompt, for support rollouts, for
    groups that several processes share, and for sharded weights.
    """

    def __init__(
        self, trainer: Any, name: str, results: Path | str = "results", questions: int = QUESTIONS, first: int = 1
    ):
        check_count("questions", questions, 16)
        check_count("first", first)
        k, rows = trainer.num_generations, trainer.args.per_device_train_batch_size * trainer.args.steps_per_generation
        check(k >= 4, f"num_generations = {k}; allowed: 4 or more, two halves of two or more")
        check(rows % k == 0, f"a process has {rows} responses, groups of {k}; allowed: whole groups in each process")
        check(not getattr(trainer, "support", 0), "support rollouts; allowed: none while noise is measured")
        sharded = trainer.is_fsdp_enabled or trainer.is_deepspeed_enabled
        check(not sharded, "weights in shards (FSDP, DeepSpeed); allowed: whole weights in each process")
        self.trainer, self.name, self.results = trainer, check_name(name), Path(results)
        self.questions, self.first, self.round = questions, first, 0
        self.groups: list[GroupNoise] = []
        self.wrapped = ("_calculate_rewards", "_generate_and_score_completions")

    def on_train_begin(self, args: Any, state: Any, control: Any, **more: Any) -> None:
        """Wrap the methods with which the trainer generates and scores responses, to measure them."""
        if not state.is_world_process_zero:
            return
        open_store(self.results)
        trainer = self.trainer
        calculate, generate = (getattr(trainer, name) for name in self.wrapped)

        def calculate_rewards(*arguments: Any, **named: Any) -> Any:
            self.scores = calculate(*arguments, **named)
            return self.scores

        def generate_and_score(*arguments: Any, **named: Any) -> Any:
            output = generate(*arguments, **named)
            if trainer.model.training:
                self.round += 1
                if self.round >= self.first:
                    self._measure(output)
            return output

        for name, method in zip(self.wrapped, (calculate_rewards, generate_and_score), strict=True):
            setattr(trainer, name, method)

    def on_train_end(self, args: Any, state: Any, control: Any, **more: Any) -> None:
        """Write the measurements, unless they are written already."""
        if state.is_world_process_zero and "_calculate_rewards" in vars(self.trainer):
            self._finish()

    def _finish(self) -> None:
        for name in self.wrapped:
            delattr(self.trainer, name)  # restores the methods of its class
        try:
            write_run(self.results, self.name, self.groups, (self.first, self.round))
        except UserError as error:  # the run itself is worth keeping
            warnings.warn(f"no noise of {self.name} is written: {error}", stacklevel=2)

    def _measure(self, output: dict[str, Any]) -> None:
        """Measure the prompts of a round, up to the wanted number in all."""
        trainer, k = self.trainer, self.trainer.num_generations
        n = len(output["completion_ids"])
        rewards = (self.scores * trainer.reward_weights.to(self.scores)).nansum(1)[:n].double().cpu().numpy()
        parameters = [one for one in trainer.model.parameters() if one.requires_grad]
        with aside():
            for start in range(0, n - k + 1, k):
                if len(self.groups) < self.questions:
                    own = partial(self._log_probs, output, start)
                    self.groups.append(measure_group(own, rewards[start:][: k - k % 2], parameters))
        if len(self.groups) >= self.questions:
            self._finish()

    def _log_probs(self, output: dict[str, Any], start: int, rows: Any) -> tuple[Any, Any]:
        """Return log-probabilities (n, L) of the completions' tokens in rows from `start` on, and which of them
        count."""
        check(not any(output.get(name) is not None for name in MODEL_INPUTS), "prompts with images; allowed: text")
        names = ("prompt_ids", "prompt_mask", "completion_ids", "completion_mask", "tool_mask")
        own = {name: output[name][start + rows] for name in names if output.get(name) is not None}
        ids, mask = (joined([own[f"prompt_{part}"], own[f"completion_{part}"]], 1) for part in ("ids", "mask"))
        kept = own["completion_ids"].shape[1]
        logp, _, _ = self.trainer._get_per_token_logps_and_entropies(self.trainer.model, ids, mask, kept)
        return logp, token_mask(own)
