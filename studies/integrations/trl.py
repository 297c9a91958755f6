"""Train with rftlab's estimators in TRL: a GRPOTrainer with their advantages and loss, whose run can be kept.

    RftlabGRPOTrainer(model, reward, args, data, estimator="gspo", support=2, window=32)

It is a subclass, not a mixin, and combines with another subclass of GRPOTrainer when it comes first
(`class Mine(RftlabGRPOTrainer, Theirs)`). Three methods of TRL are extended, and one is replaced:

    _calculate_rewards                 the rewards of all processes are kept, with the prompts that they belong to
    _generate_and_score_completions    advantages of the generation batch replace TRL's; support rollouts are dropped
    _prepare_inputs                    responses and tokens of each optimiser batch are counted
    _compute_loss                      `rftlab.losses` of a micro-batch, divided by these counts

The split of an optimiser batch into micro-batches and processes therefore has no effect. Generation, rewards, reference
log-probabilities, logging and evaluation are TRL's. Written after TRL 1.16.
"""

import copy
import json
from collections import deque
from dataclasses import replace
from pathlib import Path
from typing import Any

from trl import GRPOConfig, GRPOTrainer
from trl.trainer.callbacks import TrainerCallback
from trl.trainer.grpo_trainer import gather_object

from rftlab.llm import losses
from rftlab.llm.losses.credit import shaped
from rftlab.llm.losses.inputs import in_reward, joined, reads_entropy, without_graph
from rftlab.llm.losses.layout import make_layout, wide
from rftlab.shared.cards import preset
from rftlab.shared.config.aggregation import aggregation_rule
from rftlab.shared.config.shaping import Length
from rftlab.shared.estimator import Estimator
from rftlab.shared.memory import empty_bonus, move_bonus
from rftlab.shared.plumbing.errors import UserError, check
from rftlab.shared.plumbing.files import write_file
from rftlab.shared.plumbing.folders import folder_below, path_kind, read_json
from rftlab.studies.data.runs.store import open_store
from rftlab.studies.integrations.trl_options import (
    check_options,
    check_sizes,
    check_trl_estimator,
    design_facts,
)
from rftlab.studies.readers.assemble import assemble
from rftlab.studies.readers.formats.trl import run_from_history
from rftlab.studies.readers.run import KnownDesign
from rftlab.studies.readers.store import PLACE, check_name, write_collection

WINDOWS, BONUS = "rftlab_windows.json", "rftlab_bonus.json"
"""Names of files in checkpoints."""
MODEL_INPUTS = (
    "pixel_values",
    "image_grid_thw",
    "num_images",
    "pixel_attention_mask",
    "spatial_shapes",
    "num_tiles",
    "image_sizes",
    "token_type_ids",
    "mm_token_type_ids",
    "image_position_ids",
)


class TextWindows:
    """Most recent rewards of each prompt, as in `rftlab.shared.memory`, for an unknown number of prompts."""

    def __init__(self, size: int):
        self.size = size
        self.rewards: dict[str, deque[float]] = {}
        """Rewards by the prompt's text, the oldest first."""

    def push(self, texts: list[str], rewards: list[float]) -> None:
        """Append rewards to the windows of their prompts, in order."""
        for text, reward in zip(texts, rewards, strict=True):
            self.rewards.setdefault(text, deque(maxlen=self.size)).append(reward)

    def pool(self, texts: dict[int, str]) -> tuple[list[float], list[int]]:
        """Return baseline sets from the windows of these prompts by label: rewards, and the labels of their groups."""
        held = [(reward, label) for label, text in texts.items() for reward in self.rewards.get(text, ())]
        return [reward for reward, _ in held], [label for _, label in held]

    def save(self, path: Path) -> None:
        """Write the windows to a file."""
        held = {text: list(rewards) for text, rewards in self.rewards.items()}
        write_file(path, json.dumps({"size": self.size, "rewards": held}).encode())

    def load(self, path: Path) -> None:
        """Read the windows from a file of `save`. Raises UserError where it is unreadable, or has another size."""
        try:
            stored = read_json(path)
            size, rewards = stored["size"], {text: _numbers(held) for text, held in stored["rewards"].items()}
        except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
            raise UserError(f"{path} cannot be read: {error}; allowed: the replay windows of a checkpoint") from None
        if size != self.size:
            raise UserError(f"{path}: window = {size}; allowed: as in this run, {self.size}")
        self.rewards = {text: deque(held, maxlen=self.size) for text, held in rewards.items()}


def _numbers(values: Any) -> list[float]:
    if not isinstance(values, list):
        raise TypeError("rewards that are no list")
    return [float(value) for value in values]


def read_bonus(path: Path) -> list[float]:
    """Read an entropy bonus's coefficient, and 1 where it is active, from a checkpoint. Raises UserError without
    one."""
    try:
        coefficient, on = _numbers(read_json(path))
        if not (0 <= coefficient <= 1 and on in (0, 1)):
            raise ValueError("numbers that are none of a bonus")
    except (OSError, ValueError, TypeError) as error:
        raise UserError(f"{path} cannot be read: {error}; allowed: the entropy bonus of a checkpoint") from None
    return [coefficient, on]


def token_mask(inputs: dict[str, Any]) -> Any:
    """Return which tokens (R, L) count in the loss."""
    mask = inputs["completion_mask"]
    return (mask if inputs.get("tool_mask") is None else mask * inputs["tool_mask"]).bool()


class RftlabGRPOTrainer(GRPOTrainer):
    """GRPOTrainer whose advantages and loss are those of an estimator.

    estimator: a name of `rftlab estimators`, or an `Estimator`; its KL penalty turns on TRL's reference model.
    support: number of the last of the `num_generations` responses to a prompt that only enter its baseline.
    window: the most recent rewards of a prompt, this round's included, that form its baseline; 0 for this round's
    alone. The text of a prompt identifies it. Raises UserError where an option of TRL's contradicts these.
    """

    def __init__(
        self,
        model: Any,
        reward_funcs: Any = None,
        args: Any = None,
        *arguments: Any,
        estimator: str | Estimator,
        support: int = 0,
        window: int = 0,
        **named: Any,
    ):
        args = copy.copy(args) if args is not None else GRPOConfig()
        chosen = preset(estimator) if isinstance(estimator, str) else estimator
        check(isinstance(chosen, Estimator), f"estimator = {estimator!r}; allowed: a name, or an Estimator")
        check_sizes(args, support, window)
        check_trl_estimator(chosen, args)
        check_options(chosen, args)
        if chosen.kl.against_base:
            args.beta = chosen.kl.coef or 1.0  # TRL computes the reference's log-probabilities where this is not 0
        vars(args).update(design_facts(chosen, support))
        self.estimator, self.support = chosen, support
        self.windows = TextWindows(window) if window else None
        """Most recent rewards of each prompt."""
        self.bonus = empty_bonus(chosen.entropy, chosen.entropy_target)
        """State of the entropy bonus: `rftlab.shared.memory.empty_bonus`."""
        self._entropies: list[Any] = []
        """Sums of entropies and of tokens over the micro-batches of the present update."""
        super().__init__(model, reward_funcs, args, *arguments, **named)

    def _calculate_rewards(self, inputs, prompts, completions, completion_ids_list):
        scores = super()._calculate_rewards(inputs, prompts, completions, completion_ids_list)
        texts = [one if isinstance(one, str) else json.dumps(one, default=str) for one in prompts]
        self._scored = scores, gather_object(texts) if self.windows else []
        return scores

    def _generate_and_score_completions(self, inputs):
        output = super()._generate_and_score_completions(inputs)
        if not self.model.training:
            return output
        if in_reward(self.estimator) and output.get("old_per_token_logps") is None:
            with without_graph():
                size = self.args.per_device_train_batch_size
                output["old_per_token_logps"] = self._logps(self.model, output, batch_size=size)[0]
        n, index = len(output["completion_mask"]), self.accelerator.process_index
        advantages, trained = self._advantages(output)
        self._show(advantages)
        mine = slice(index * n, (index + 1) * n)
        local = advantages[mine]
        output["advantages"] = local if local.ndim == 1 else local[:, : output["completion_mask"].shape[1]]
        return output if self.support == 0 else self._without_support(output, trained[mine])

    def _show(self, advantages) -> None:
        """Replace the advantages that TRL logs with completions; advantages of tokens are summed over a response."""
        logged = self._logs["advantages"]
        values = (advantages if advantages.ndim == 1 else advantages.sum(-1)).tolist()
        for _ in range(min(len(values), len(logged))):
            logged.pop()
        logged.extend(values)

    def _everywhere(self, values):
        """Return the values of tokens of all processes, padded to one length."""
        return self.accelerator.gather(self.accelerator.pad_across_processes(values, dim=1))

    def _advantages(self, output: dict[str, Any]) -> tuple[Any, Any]:
        """Return advantages of the responses of all processes, or of their tokens, and which responses are trained."""
        by_function, texts = self._scored
        real, k = wide(by_function.device), self.num_generations
        weights = self.reward_weights.to(by_function)
        mask = self._everywhere(token_mask(output))
        scored = ~by_function.isnan().all(1)
        place = scored.new_ones(len(scored)).cumsum(0) - 1
        group, trained = place // k, place % k < k - self.support
        old, ref = None, None
        if in_reward(self.estimator):
            old, ref = (self._everywhere(output[f"{name}_per_token_logps"]).to(real) for name in ("old", "ref"))
        layout = make_layout(tuple(mask.shape), mask.device, mask, None)
        rewards = (by_function * weights).nansum(1).to(real)
        rewards = shaped(self.estimator, layout, rewards, rewards if old is None else old, ref)
        rows, aside = trained & scored, ~trained & scored
        sets = {"pool": self._remembered(self.windows, rewards, group, rows, texts)} if self.windows else {}
        if self.support:
            sets["support"] = rewards[aside], group[aside]
        plain = replace(self.estimator, length=Length(), kl=replace(self.estimator.kl, place="loss"))
        computed = rewards.new_zeros(0)
        if rows.any():
            if plain.advantage.combine == "advantages":
                rewards, sets = by_function.nan_to_num(0.0).to(real), {"weights": weights.to(real)}
            computed = losses.advantages(rewards[rows], group[rows], mask[rows], estimator=plain, **sets)
        advantages = rewards.new_zeros((len(rewards), *computed.shape[1:]))
        advantages[rows] = computed
        return advantages, trained

    def _remembered(self, windows: TextWindows, rewards, group, rows, texts: list[str]) -> tuple[Any, Any]:
        """Return the windows of the batch's prompts with its trained rewards, and the labels of their groups."""
        entered = rows.nonzero()[:, 0].tolist()
        windows.push([texts[place] for place in entered], rewards[rows].tolist())
        held, labels = windows.pool(dict(zip(group.tolist(), texts, strict=True)))
        return rewards.new_tensor(held), group.new_tensor(labels)

    def _without_support(self, output: dict[str, Any], trained) -> dict[str, Any]:
        """Return a batch with its trained responses alone."""
        check("pixel_values" not in output, "support rollouts with images; allowed: support=0, or prompts of text")
        return {name: value[trained] if value.ndim else value for name, value in output.items()}

    def _prepare_inputs(self, generation_batch):
        before = self._buffered_inputs
        inputs = super()._prepare_inputs(generation_batch)
        if self.model.training and self._buffered_inputs is not before:
            self._count(self._buffered_inputs)
        return inputs

    def _count(self, parts: list[dict[str, Any]]) -> None:
        """Store in each micro-batch the number of responses and tokens of its optimiser batch, over all processes."""
        steps, every = self.args.gradient_accumulation_steps, aggregation_rule(self.estimator.aggregation).count_empty
        for start in range(0, len(parts), steps):
            window = parts[start : start + steps]
            lengths = [token_mask(part).sum(1) for part in window]
            n_rows = sum((length >= 0 if every else length > 0).sum() for length in lengths)
            n_tokens = sum(length.sum() for length in lengths)
            for part in window:
                part["rftlab_counts"] = tuple(self.accelerator.reduce(n, reduction="sum") for n in (n_rows, n_tokens))

    def _logps(self, model, inputs: dict[str, Any], **more: Any) -> tuple[Any, Any, Any]:
        """Return log-probabilities and entropies of the completions' tokens (R, L), and the router's loss."""
        asked, answered = inputs["prompt_ids"], inputs["completion_ids"]
        ids = joined([asked, answered], 1)
        mask = joined([inputs["prompt_mask"], inputs["completion_mask"]], 1)
        given = {name: inputs[name] for name in MODEL_INPUTS if inputs.get(name) is not None}
        return self._get_per_token_logps_and_entropies(model, ids, mask, answered.shape[1], **given, **more)

    def _sampler(self, inputs: dict[str, Any], logp) -> dict[str, Any]:
        """Return the loss's inputs from the policy that sampled: its log-probabilities where the estimator corrects for
        it, else TRL's importance weights."""
        old = inputs.get("old_per_token_logps")
        old = logp.detach() if old is None else old
        if self.estimator.correction.kind == "none":
            weights = inputs.get("importance_sampling_ratio")
            return {} if weights is None else {"correction": weights.expand(logp.shape)}
        said = inputs.get("sampling_per_token_logps")
        if said is None:
            return {"sampler_logp": old}
        return {"sampler_logp": said.where(~said.isnan(), old)}  # vLLM gives nan where it knows none

    def _compute_loss(self, model, inputs):
        estimator, training = self.estimator, self.model.training
        logp, entropy, router = self._logps(model, inputs, compute_entropy=True, compute_aux_loss=self.aux_loss_enabled)
        mask, (n_rows, n_tokens) = token_mask(inputs), inputs.get("rftlab_counts", (None, None))
        result = losses.objective_and_metrics(
            logp,
            inputs.get("old_per_token_logps"),
            mask=mask,
            estimator=estimator,
            advantages=inputs["advantages"],
            ref_logp=inputs.get("ref_per_token_logps"),
            entropy=entropy if reads_entropy(estimator) else None,
            bonus=float(self.bonus.prod()) if estimator.entropy_target else None,
            n_rows=n_rows,
            n_tokens=n_tokens,
            **self._sampler(inputs, logp),
        )
        scale = self.accelerator.num_processes if training else 1  # processes are averaged
        loss = -result.objective * scale
        metrics = self._metrics["train" if training else "eval"]
        shown = {"clip_ratio/region_mean": result.clip_fraction}
        shown["entropy"] = (entropy.detach() * mask).sum() / mask.sum().clamp(min=1)
        if estimator.has_bonus:
            shown["policy_loss"] = -result.policy * scale
            if training:
                self._move_bonus([(entropy.detach() * mask).sum(), mask.sum()])
        if estimator.kl.kind != "none":
            shown["kl"] = result.kl
        if router is not None:
            steps = self.current_gradient_accumulation_steps if training else 1
            loss = loss + self.router_aux_loss_coef * router / steps
            shown["aux_loss"] = router.detach()
        for name, value in shown.items():
            metrics[name].append(self.accelerator.gather(value).float().mean().item())
        return loss

    def _move_bonus(self, sums: list[Any]) -> None:
        """Adapt the coefficient of the next update's entropy bonus after the last micro-batch of an update, by the
        entropies of all processes."""
        self._entropies = [a + b for a, b in zip(self._entropies or [0, 0], sums, strict=True)]
        if self.accelerator.sync_gradients:
            total, tokens = (float(self.accelerator.reduce(one, reduction="sum")) for one in self._entropies)
            move_bonus(self.bonus, self.estimator.entropy_target, self.estimator.entropy_step, total / max(tokens, 1.0))
            self._entropies = []
            self.entropy_coef = float(self.bonus[0])  # TRL's name for it
            self._metrics["train"]["entropy_coef"].append(self.entropy_coef)

    def _save_checkpoint(self, model, trial):
        super()._save_checkpoint(model, trial)
        folder = Path(self._get_output_dir(trial=trial)) / f"checkpoint-{self.state.global_step}"
        if self.windows and self.args.should_save:
            self.windows.save(folder / WINDOWS)
        if self.estimator.entropy_target and self.args.should_save:
            write_file(folder / BONUS, json.dumps(self.bonus.tolist()).encode())

    def _load_optimizer_and_scheduler(self, checkpoint):
        super()._load_optimizer_and_scheduler(checkpoint)
        if checkpoint is not None and self.windows:
            self.windows.load(Path(checkpoint) / WINDOWS)
        if checkpoint is not None and self.estimator.entropy_target:
            self.bonus[:] = read_bonus(Path(checkpoint) / BONUS)


class KeepCurve(TrainerCallback):
    """Callback that keeps TRL's log, and the design of its arguments, as `imported:NAME` of a results folder.

    `rftlab compare imported:NAME`, `diagnose`, `power` and `signal` read it. Raises UserError before training where the
    name is invalid or taken. A run that stops earlier can be kept by `rftlab import` of its last checkpoint.
    """

    def __init__(self, name: str, results: Path | str = "results"):
        self.name, self.results = check_name(name), Path(results)

    def on_train_begin(self, args: Any, state: Any, control: Any, **more: Any) -> None:
        """Check that the name is free."""
        if state.is_world_process_zero:
            open_store(self.results)
            folder = folder_below(self.results, PLACE, self.name)
            check(path_kind(folder) is None, f"{folder} holds another run; allowed: another name, or remove the folder")

    def on_train_end(self, args: Any, state: Any, control: Any, **more: Any) -> None:
        """Write the run into the results folder."""
        if state.is_world_process_zero:
            raw = run_from_history(self.name, state.log_history, state.logging_steps)
            raw.config = vars(args)
            write_collection(self.results, self.name, [assemble(raw, (), KnownDesign(), args.world_size)])
