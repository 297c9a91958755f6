"""A causal language model as the trainer sees it: log-probabilities of given responses, never the logits of a whole batch."""

import copy
from collections.abc import Iterator

import numpy as np
import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

from llm.config import Compute
from llm.responses import Responses, micro_batches, numbers_of, token_indices


class Policy:
    """A model whose next-token distribution is softmax(head(body(ids)) / temperature)."""

    def __init__(self, model: nn.Module, compute: Compute, temperature: float = 1.0):
        """model: a Hugging Face causal language model; its dropout is turned off."""
        self.model, self.compute, self.temperature = model, compute, temperature
        silence_dropout(model)
        if compute.gradient_checkpointing:
            model.gradient_checkpointing_enable({"use_reentrant": False})
        self.settle()

    def frozen_copy(self) -> "Policy":
        """A copy that never learns."""
        model = copy.deepcopy(self.model)
        model.requires_grad_(False)
        return Policy(model, self.compute, self.temperature)

    def settle(self) -> None:
        """Put the model in the mode for what follows: blocks are computed again in train mode only, and a cache is kept in the other only."""
        if self.compute.gradient_checkpointing or self.model.training:
            self.model.train(self.compute.gradient_checkpointing and torch.is_grad_enabled())

    def named_parameters(self) -> Iterator[tuple[str, nn.Parameter]]:
        """Everything that is trained, tied weights once."""
        return self.model.named_parameters()

    def log_probs(self, responses: Responses, rows: np.ndarray, with_entropy: bool = False) -> tuple[torch.Tensor, torch.Tensor | None]:
        """Log-probabilities (n,) of the tokens of some rows, row by row, and the entropy (n,) of the distributions that they come from.

        Equal responses to one prompt go through the model once.
        """
        heads, which = np.unique(numbers_of(responses, rows), return_inverse=True)
        if len(heads) < len(rows):
            starts = np.concatenate([[0], np.cumsum(responses.lengths[rows[heads]])])
            spread = torch.from_numpy(token_indices(starts, which)).to(self.compute.device)
            columns = self.log_probs(responses, rows[heads], with_entropy)
            return tuple(None if column is None else column.index_select(0, spread) for column in columns)
        self.settle()
        ids, places = padded(responses, rows)
        device = self.compute.device
        targets = torch.from_numpy(responses.tokens[token_indices(responses.starts, rows)]).to(device)
        with autocast(self.compute):
            hidden = self.model.base_model(input_ids=torch.from_numpy(ids).to(device), use_cache=False).last_hidden_state
            hidden = hidden.reshape(-1, hidden.shape[-1])[torch.from_numpy(places).to(device)]
            return in_chunks(self.model.get_output_embeddings(), hidden, targets, self.temperature, with_entropy, self.compute.logit_rows)

    @torch.no_grad()
    def all_log_probs(self, responses: Responses) -> np.ndarray:
        """Log-probabilities (T,) float64 of all tokens, micro-batch by micro-batch, without a gradient."""
        out = np.empty(len(responses.tokens))
        for rows in micro_batches(responses, self.compute.micro_tokens):
            out[token_indices(responses.starts, rows)] = self.log_probs(responses, rows)[0].cpu()
        return out


def autocast(compute: Compute):
    """The context in which passes of the model run."""
    return torch.autocast(torch.device(compute.device).type, torch.bfloat16, enabled=compute.precision == "bf16")


def silence_dropout(model: nn.Module) -> None:
    """Turn dropout off: the policy that is trained must be the policy that sampled."""
    for module in model.modules():
        if isinstance(module, nn.Dropout):
            module.p = 0.0
        if isinstance(getattr(module, "attention_dropout", None), float):
            module.attention_dropout = 0.0


def padded(responses: Responses, rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Prompts with responses as (len(rows), longest) ids, and the flat places (n,) of the states that predict the response tokens.

    Padding stands on the right, where a causal model never looks from a real token: no attention mask is needed.
    """
    totals = responses.totals[rows]
    width = int(totals.max())
    ids, places = np.zeros((len(rows), width), dtype=np.int64), []
    for at, row in enumerate(rows):
        prompt, response = responses.prompts[responses.group[row]], responses.response(row)
        ids[at, : len(prompt)] = prompt
        ids[at, len(prompt) : totals[at]] = response
        places.append(np.arange(at * width + len(prompt) - 1, at * width + totals[at] - 1))
    return ids, np.concatenate(places)


def in_chunks(head: nn.Module, hidden: torch.Tensor, targets: torch.Tensor, temperature: float, with_entropy: bool, size: int):
    """`token_log_probs` of hidden (n, d), `size` tokens at a time; the backward pass computes the logits of a chunk again."""
    arguments = [(head, hidden[i : i + size], targets[i : i + size], temperature, with_entropy) for i in range(0, len(targets), size)]
    if len(arguments) == 1 or not torch.is_grad_enabled():
        parts = [token_log_probs(*argument) for argument in arguments]
    else:
        parts = [checkpoint(token_log_probs, *argument, use_reentrant=False) for argument in arguments]
    logp, entropy = zip(*parts, strict=True)
    return torch.cat(logp), torch.cat(entropy) if with_entropy else None


def token_log_probs(head: nn.Module, hidden: torch.Tensor, targets: torch.Tensor, temperature: float, with_entropy: bool):
    """log pi(target) (n,) of softmax(head(hidden) / temperature), hidden (n, d); and its entropy -sum pi log pi (n,), or None."""
    logits = head(hidden)
    logits = (logits if logits.dtype == torch.float64 else logits.float()) / temperature
    norm = logits.logsumexp(-1)
    logp = logits.gather(-1, targets[:, None])[:, 0] - norm
    return logp, norm - (torch.softmax(logits, -1) * logits).sum(-1) if with_entropy else None
