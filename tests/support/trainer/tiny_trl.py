"""Runs of TRL that a test can afford, with our estimators in them, and what they did at each update."""

import warnings
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from datasets import Dataset
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast

from tests.support.trainer.tiny_models import VOCABULARY, small_model

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # TRL imports what is installed, such as vLLM, and neither is our business
    from trl import GRPOConfig
    from trl.trainer.callbacks import TrainerCallback

    from rftlab.studies.integrations.trl import KeepCurve as KeepCurve
    from rftlab.studies.integrations.trl import RftlabGRPOTrainer, token_mask
    from rftlab.studies.integrations.trl_noise import MeasureNoise as MeasureNoise

WORDS = ["<pad>", "<unk>", "<eos>", *map(str, range(VOCABULARY - 3))]
PROMPTS = [f"{i} {i + 1} {i + 2}"[: 3 + 2 * (i % 2)] for i in range(8)]
K, GROUPS = 4, 3


class Update(NamedTuple):
    """What an update was made from."""

    model: torch.nn.Module
    """Before it."""
    gradient: torch.Tensor
    """All parameters', one behind the other."""
    parts: list[dict]
    """Its micro-batches."""


def tokenizer():
    """Words and numbers."""
    words = Tokenizer(models.WordLevel({word: i for i, word in enumerate(WORDS)}, unk_token="<unk>"))
    words.pre_tokenizer = pre_tokenizers.Whitespace()
    return PreTrainedTokenizerFast(tokenizer_object=words, pad_token="<pad>", eos_token="<eos>", unk_token="<unk>")


def seen_reward(kept):
    """A reward of the answer's words that keeps what it gave: 1 for an even word in front, and a little for others."""

    def even(prompts, completions, **more):
        found = [float(text.split()[0] in "0 2 4 6 8") if text.split() else 0.0 for text in completions]
        kept.append((list(prompts), found))
        return found

    return even


COLUMNS = ("advantages", "ref_per_token_logps", "old_per_token_logps", "sampling_per_token_logps")


class Watched(RftlabGRPOTrainer):
    """Keeps the micro-batches of an update, and makes up a sampler for an estimator that asks for one."""

    def __init__(self, *arguments, **named):
        self.parts = []
        super().__init__(*arguments, **named)

    def _compute_loss(self, model, inputs):
        if self.estimator.correction.kind != "none" and "sampling_per_token_logps" not in inputs:
            old = inputs["old_per_token_logps"]  # as from an engine that rounds, and knows nothing of a token
            inputs["sampling_per_token_logps"] = old + 0.1 * torch.arange(old.numel()).view_as(old).sin()
            inputs["sampling_per_token_logps"][0, 0] = torch.nan
        self.parts.append(inputs)
        return super()._compute_loss(model, inputs)


class Watch(TrainerCallback):
    """Keeps updates."""

    def __init__(self):
        self.trainer, self.updates = None, []

    def on_pre_optimizer_step(self, args, state, control, model, **more):
        """Gradients are whole. TRL puts a forward of its own into a model, which a copy would not leave."""
        before = small_model()
        before.load_state_dict(model.state_dict())
        self.updates.append(Update(before, gradient_of(model), list(self.trainer.parts)))
        self.trainer.parts.clear()


def gradient_of(model):
    """Of all parameters, one behind the other."""
    return torch.cat([p.grad.flatten() for p in model.parameters() if p.grad is not None]).clone()


def trainer_of(
    folder, estimator, support=0, window=0, reward=None, rows=K * GROUPS, prompts=PROMPTS, callbacks=(), **more
):
    """A trainer of a small model, three prompts a round; more: options of TRL."""
    parts = K * GROUPS // rows
    given = {"max_steps": 1, "steps_per_generation": parts, "learning_rate": 3e-3, "lr_scheduler_type": "constant"}
    given |= {"num_generations": K, "max_completion_length": 6, "max_grad_norm": 0.0, "save_strategy": "no"}
    given |= {
        "use_cpu": True,
        "bf16": False,
        "gradient_checkpointing": False,
        "model_init_kwargs": {"dtype": "float32"},
    }
    given |= {"report_to": [], "logging_steps": 1, "disable_tqdm": True}
    settings = GRPOConfig(
        output_dir=str(folder),
        per_device_train_batch_size=rows,
        gradient_accumulation_steps=more.pop("accumulate", parts),
        **(given | more),
    )
    data, watch = Dataset.from_list([{"prompt": text} for text in prompts]), Watch()
    place = Path(folder) / "model"
    if not place.exists():  # TRL reads the reference from where the model lies
        small_model(spread=0.3).save_pretrained(place)
        tokenizer().save_pretrained(place)
    ours = {"estimator": estimator, "support": support, "window": window}
    made = Watched(str(place), reward or seen_reward([]), settings, data, callbacks=[watch, *callbacks], **ours)
    watch.trainer = made
    return made, watch


class Tokens(NamedTuple):
    """Of the completions of an update, packed."""

    logp: torch.Tensor
    """(T,) by the model itself, with its graph."""
    entropy: torch.Tensor
    """(T,), with its graph."""
    starts: np.ndarray
    """(R + 1,)"""
    columns: dict[str, np.ndarray]
    """(T,) each: what the trainer hands to its loss."""


def forward(model, parts):
    """The completions of micro-batches, by the model itself."""
    found = [], [], []
    columns = {name: [] for name in COLUMNS}
    for part in parts:
        ids = torch.cat([part["prompt_ids"], part["completion_ids"]], 1)
        attention = torch.cat([part["prompt_mask"], part["completion_mask"]], 1)
        n, mask = part["completion_ids"].shape[1], token_mask(part)
        scores = model(input_ids=ids, attention_mask=attention).logits[:, -n - 1 : -1].log_softmax(-1)
        logp = scores.gather(2, part["completion_ids"][:, :, None])[:, :, 0]
        for out, values in zip(found, (logp[mask], -(scores.exp() * scores).sum(-1)[mask], mask.sum(1)), strict=True):
            out.append(values)
        for name, out in columns.items():
            if part.get(name) is not None:
                spread = part[name][:, None] if part[name].ndim == 1 else part[name]
                out.append(spread.expand(mask.shape)[mask])
    logp, entropy, lengths = (torch.cat(values) for values in found)
    known = {name: torch.cat(values).double().numpy() for name, values in columns.items() if values}
    return Tokens(logp, entropy, np.concatenate([[0], lengths.cumsum(0).numpy()]), known)
