"""Compute log-probabilities of given responses under a causal language model, without the logits of a whole batch."""

import copy
import hashlib
import inspect
import mmap
import tempfile
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn
from torch._dynamo.exc import TorchDynamoException
from torch.nn import functional
from transformers import AttentionInterface, AttentionMaskInterface, PreTrainedModel
from transformers.integrations.sdpa_attention import sdpa_attention_forward
from transformers.masking_utils import sdpa_mask

from rftlab.llm.config import Compute
from rftlab.llm.losses.layout import send
from rftlab.llm.policy.head import token_log_probs
from rftlab.llm.policy.packing import ALONE, PAIRS, Responses, Sharing, micro_batches, read, token_indices
from rftlab.llm.policy.tensors import adapted_layers, turned_off, whole_weights
from rftlab.shared.plumbing.errors import UserError, plain
from rftlab.shared.plumbing.files import reported

GROUPED = "grouped_sdpa"
"""Name under which `grouped_attention` is registered for models."""
ALIGNMENT = 64
"""Alignment in bytes at which torch's own tensors begin."""
ALIGNED = 8
"""Alignment of the rows of a mask, in numbers. torch's memory-efficient kernels use a mask without a copy where its
rows begin at multiples of it (`preprocess_mask` in ATen/native/transformers/attention.cpp)."""


def grouped_attention(
    module, query, key, value, attention_mask, dropout=0.0, scaling=None, is_causal=None, **more
) -> tuple[torch.Tensor, None]:
    """Attend as `sdpa_attention_forward` does, without a copy of keys and values for every head that reads them
    (2305.13245): query (B, H, L, D), key and value (B, K, M, D), a mask or None; returns (B, L, H, D).

    transformers makes that copy wherever there is a mask, because a GPU's fast kernels need it. On a CPU it took a
    third of the time of sampling. Results agree to rounding.
    """
    usual = torch.is_grad_enabled() or query.device.type != "cpu" or more.get("position_bias") is not None
    if usual or attention_mask is None or query.shape[1] == key.shape[1]:
        return sdpa_attention_forward(
            module, query, key, value, attention_mask, dropout=dropout, scaling=scaling, is_causal=is_causal, **more
        )
    out = functional.scaled_dot_product_attention(query, key, value, attention_mask, scale=scaling, enable_gqa=True)
    return out.transpose(1, 2).contiguous(), None


def group_heads(model: PreTrainedModel) -> None:
    """Make a model on a CPU use `grouped_attention`, where it would use torch's own function."""
    if model.device.type == "cpu" and model.config._attn_implementation == "sdpa":
        model.set_attn_implementation(GROUPED)


AttentionInterface.register(GROUPED, grouped_attention)
AttentionMaskInterface.register(GROUPED, sdpa_mask)


def mapped_copies(tensors: Sequence[torch.Tensor]) -> tuple[mmap.mmap, list[torch.Tensor]]:
    """Return copies of CPU tensors, none of them empty, and the memory that holds them: an unnamed file that disappears
    with the process. The copies must not be written to. Raises UserError where the folder of temporary files (TMPDIR)
    has no room."""
    with (
        reported(Path(tempfile.gettempdir()), "set TMPDIR to a folder with room"),
        tempfile.TemporaryFile() as file,
    ):
        starts = []
        for tensor in tensors:
            starts.append(file.seek(-(-file.tell() // ALIGNMENT) * ALIGNMENT))
            file.write(tensor.detach().contiguous().view(-1).view(torch.uint8).numpy().data)
        file.flush()
        memory = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_COPY)
    copies = [
        torch.frombuffer(memory, dtype=tensor.dtype, count=tensor.numel(), offset=start).view(tensor.shape)
        for tensor, start in zip(tensors, starts, strict=True)
    ]
    return memory, copies


def compute_again(model: PreTrainedModel) -> None:
    """Make a model in train mode keep only the inputs of its blocks, and compute these again in the backward pass."""
    new, old = "activation_checkpointing_enable", "gradient_checkpointing_enable"
    # the new name is that of transformers 5.20; vLLM 0.32 needs older versions
    getattr(model, new if hasattr(model, new) else old)({"use_reentrant": False})


class Policy:
    """A policy: a model whose next-token distribution is softmax(head(body(ids)) / temperature)."""

    def __init__(self, model: PreTrainedModel, compute: Compute, temperature: float = 1.0):
        """Set up the policy; model: a Hugging Face causal language model, whose dropout is turned off."""
        self.model, self.compute, self.temperature = model, compute, temperature
        self.sharing = Sharing(compute.micro_tokens, PAIRS * model.config.hidden_size) if takes_masks(model) else ALONE
        silence_dropout(model)
        group_heads(model)
        if compute.gradient_checkpointing:
            compute_again(model)
        self.body = compiled(model.base_model) if compute.compile else model.base_model
        self.settle()

    def reference(self) -> "Frozen | Unadapted":
        """Return the policy before training, to be kept: the same model without its adapters, or else a frozen copy."""
        return Unadapted(self) if adapted_layers(self.model) else Frozen(self)

    @property
    def narrow(self) -> torch.dtype:
        """Number type of the products in passes of the model."""
        return torch.bfloat16 if self.compute.precision == "bf16" else self.model.dtype

    def settle(self) -> None:
        """Put the model in the mode for the next pass. Blocks are computed again in train mode only, and a cache is
        kept in eval mode only."""
        if self.compute.gradient_checkpointing or self.model.training:
            self.model.train(self.compute.gradient_checkpointing and torch.is_grad_enabled())

    def named_parameters(self) -> Iterator[tuple[str, nn.Parameter]]:
        """Return the names and parameters that are trained, tied weights once: adapters alone where there are any."""
        return ((name, parameter) for name, parameter in self.model.named_parameters() if parameter.requires_grad)

    def weights(self) -> Iterator[tuple[str, torch.Tensor]]:
        """Yield all weights, tied ones once, under the names of the model without adapters. Adapters are added to them,
        one tensor at a time."""
        return whole_weights(self.model)

    def base_checksum(self) -> str:
        """Return the checksum of the weights without adapters. It is that of the base model before training, and with
        adapters at any time."""
        digest = hashlib.sha256()
        for name, parameter in self.model.named_parameters():
            if ".lora_" not in name:
                digest.update(name.encode())
                digest.update(parameter.detach().cpu().contiguous().view(-1).numpy().data)
        return digest.hexdigest()

    def micro_batches(self, responses: Responses) -> list[np.ndarray]:
        """Return all rows, in parts that are small enough for one pass."""
        return micro_batches(responses, self.compute.micro_tokens, self.sharing)

    def log_probs(
        self, responses: Responses, rows: np.ndarray, with_entropy: bool = False, with_squares: bool = False
    ) -> tuple[torch.Tensor, torch.Tensor | None]:
        """Return log-probabilities (n,) of the tokens of some rows, row by row, and the entropies (n,) of the
        distributions that they come from, or these distributions' sums of squares, or None.

        Equal responses to one prompt go through the model once, and so does the prompt of several responses where this
        saves time.
        """
        self.settle()
        reading = read(responses, rows, self.sharing)
        needed = [reading.ids, reading.places, reading.targets, reading.spread]
        needed += [reading.positions, reading.segment] if reading.shared else []
        ids, places, targets, spread, *apart = send(needed, self.compute.device)
        arguments = {"position_ids": apart[0], "attention_mask": blinders(apart[1], self.narrow)} if apart else {}
        with autocast(self.compute):
            hidden = self.body(input_ids=ids, use_cache=False, **arguments).last_hidden_state
            hidden = hidden.reshape(-1, hidden.shape[-1])[places]
            logp, beside = token_log_probs(
                self.model.get_output_embeddings(),
                hidden,
                targets,
                self.temperature,
                self.compute.logit_rows,
                with_entropy,
                with_squares,
            )
        if len(spread) == len(targets):
            return logp, beside
        # The backward pass of index_select sums the gradients of equal responses.
        return logp.index_select(0, spread), None if beside is None else beside.index_select(0, spread)

    def all_log_probs(self, responses: Responses) -> np.ndarray:
        """Return log-probabilities (T,) float64 of all tokens, micro-batch by micro-batch, without a gradient. They are
        copied from the device at the end."""
        return self._all(responses)[0]

    def all_entropies(self, responses: Responses) -> np.ndarray:
        """Return entropies (T,) of the distributions that tokens are drawn from, computed as in `all_log_probs`."""
        return self._all(responses, with_entropy=True)[1]

    def all_log_probs_and_squares(self, responses: Responses) -> tuple[np.ndarray, np.ndarray]:
        """Return log-probabilities (T,), and sum_v pi(v)^2 (T,) of the distributions that tokens are drawn from, in one
        pass, computed as in `all_log_probs`."""
        logp_T, squares_T = self._all(responses, with_squares=True)
        return logp_T, squares_T

    @torch.no_grad()
    def _all(self, responses: Responses, **beside: bool) -> np.ndarray:
        """Return columns (1 or 2, T): log-probabilities, and the second result of `log_probs`."""
        out, parts = np.empty((1 + len(beside), len(responses.tokens))), self.micro_batches(responses)
        if parts:
            order = np.concatenate([token_indices(responses.starts, rows) for rows in parts])
            # All passes are started before the one copy at the end waits for them.
            passes = [self.log_probs(responses, rows, **beside) for rows in parts]
            for row, columns in zip(out, zip(*passes, strict=True), strict=False):
                row[order] = torch.cat(columns).cpu()
        return out


class Frozen(Policy):
    """A frozen copy of a policy. On a CPU its weights are in a mapped file, so that they take memory only in the phase
    that reads them."""

    def __init__(self, policy: Policy):
        self.memory, known = None, {}
        if torch.device(policy.compute.device).type == "cpu":
            weights = list(policy.model.parameters())
            self.memory, copies = mapped_copies(weights)
            known = {id(weight): nn.Parameter(copied) for weight, copied in zip(weights, copies, strict=True)}
        model = copy.deepcopy(policy.model, known)  # with the mapped weights instead of copies
        super().__init__(model.requires_grad_(False), policy.compute, policy.temperature)

    def rest(self) -> None:
        """Free memory that is not needed before the next log-probabilities. These read the file again, which the system
        caches while it has memory to spare."""
        if self.memory:
            self.memory.madvise(mmap.MADV_DONTNEED)


class Unadapted:
    """The base policy inside a policy with adapters; both share the weights."""

    def __init__(self, policy: Policy):
        self.policy = policy

    def all_log_probs(self, responses: Responses) -> np.ndarray:
        """Return log-probabilities as `Policy.all_log_probs` does, with the adapters turned off."""
        with turned_off(self.policy.model):
            return self.policy.all_log_probs(responses)

    def rest(self) -> None:
        """Do nothing, because the weights are those of the trained policy."""


def compiled(body: nn.Module) -> Callable[..., Any]:
    """Return the body of a model through torch.compile, for batches of any size. It shares the model's weights. Calls
    raise UserError where torch cannot compile it."""
    run = torch.compile(body, dynamic=True)

    def call(**arguments: Any) -> Any:
        try:
            return run(**arguments)
        except TorchDynamoException as error:
            said = plain(str(error).strip().partition("\n")[0])[:200]
            raise UserError(f"compute.compile: {said}; allowed: --compute.no-compile, or a C++ compiler") from None

    return call


def autocast(compute: Compute):
    """Return the context manager in which passes of the model run."""
    return torch.autocast(torch.device(compute.device).type, torch.bfloat16, enabled=compute.precision == "bf16")


def silence_dropout(model: nn.Module) -> None:
    """Turn dropout off, because the trained policy must be the one that sampled."""
    modules: Iterator[Any] = model.modules()
    for module in modules:
        if isinstance(module, nn.Dropout):
            module.p = 0.0
        if isinstance(getattr(module, "attention_dropout", None), float):
            module.attention_dropout = 0.0


def takes_masks(model: PreTrainedModel) -> bool:
    """Whether a model uses our attention mask and positions unchanged: every layer attends to everything that the mask
    allows, and has no other memory."""
    config, takes = model.config, inspect.signature(model.base_model.forward).parameters
    full = set(getattr(config, "layer_types", None) or ["full_attention"]) == {"full_attention"} and not getattr(
        config, "sliding_window", None
    )
    known = getattr(model, "_supports_attention_backend", False) and config._attn_implementation in (
        "sdpa",
        "eager",
        GROUPED,
    )
    return (
        full
        and known
        and not getattr(model, "_is_stateful", False)
        and {"position_ids", "attention_mask"} <= takes.keys()
    )


def blinders(segment: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    """Return the additive attention mask (S, 1, L, L): 0 where a token attends to another, in its prompt or earlier in
    its own segment (S, L), and -inf elsewhere.

    dtype: that of the passes, because another one is cast in every layer. On a GPU rows begin at multiples of ALIGNED
    numbers, because its kernels copy other masks, in every layer too.
    """
    asks, seen = segment[:, :, None], segment[:, None, :]
    sees = ((seen == 0) | (seen == asks)).tril()
    length = sees.shape[-1]
    wide = -(-length // ALIGNED) * ALIGNED if segment.device.type == "cuda" else length
    mask = torch.zeros((*sees.shape[:-1], wide), dtype=dtype, device=segment.device)[..., :length]
    return mask.masked_fill_(~sees, -torch.inf)[:, None]
