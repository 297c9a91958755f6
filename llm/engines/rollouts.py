"""Sample rollouts: the interface of engines, and an engine that is the trained Hugging Face model itself.

In that engine a token is a function of the policy's distribution and of one uniform, which depends only on (seed,
stream, round, prompt, rollout, position). So the split into batches and the order of work change tokens only where
rounding moves a distribution across its uniform, about once in 10^7 tokens in fp32; log-probabilities agree to
rounding, not bit for bit. Equal calls give equal bits.
"""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, Protocol

import numpy as np
import torch

from rftlab.llm.meter import trim_heap
from rftlab.llm.policy.packing import Responses
from rftlab.llm.policy.policy import GROUPED, Policy, autocast, takes_masks
from rftlab.llm.random import uniforms
from rftlab.llm.truncation import WHOLE, Truncation

AHEAD = 16
"""Number of positions whose uniforms are drawn at once."""


class Draws(NamedTuple):
    """Key of the random numbers of a call."""

    seed: int
    stream: int
    round: int


class Rollouts(NamedTuple):
    """Sampled responses, prompt by prompt."""

    responses: Responses
    logp: np.ndarray
    """(T,) float64 log-probability of each token. Sampled tokens have it at the sampling temperature and among the
    tokens that may be sampled, greedy tokens at temperature 1."""
    finished: np.ndarray
    """(R,) whether the response ended by itself."""


Prompts = Sequence[tuple[int, ...]]
"""Token ids of prompts."""
OnResponses = Callable[[Sequence[tuple[int, Sequence[int]]]], None]
"""Callback for responses that ended while others are still sampled; it gets pairs of the index of the response's prompt
in the call, and the response's tokens."""


def ignore(ended: Sequence[tuple[int, Sequence[int]]]) -> None:
    """Ignore the responses that ended."""


class Engine(Protocol):
    """Interface of a sampler for the trainer."""

    def sample(
        self,
        prompts: Prompts,
        contexts: np.ndarray,
        counts: np.ndarray,
        draws: Draws,
        temperature: float,
        limit: int,
        ended: OnResponses = ignore,
        truncation: Truncation = WHOLE,
    ) -> Rollouts:
        """Sample counts (G,) responses of up to `limit` tokens to prompts (G,) with numbers contexts (G,), which key
        the random numbers. Temperature 0 is greedy.

        ended: called after every step with the responses that ended in it, of which there may be none. truncation: the
        tokens that may be sampled at temperatures above 0; `logp` is relative to these.
        """

    def rest(self) -> None:
        """Free memory that is not needed before the next sync; nothing is sampled until then."""

    def sync(self, policy: Policy) -> None:
        """Take over the weights of the policy."""


class HFEngine:
    """Engine that samples with the trained model itself, so that no weights are copied."""

    def __init__(self, policy: Policy, stops: Sequence[int]):
        """Set up the engine; stops: all ids that end a response."""
        self.sync(policy)
        self.stops = torch.tensor(sorted(stops), device=policy.compute.device)
        self.masks_itself = takes_masks(policy.model) and policy.model.config._attn_implementation in ("sdpa", GROUPED)
        """Whether attention takes boolean masks of full size unchanged. Converting them for a single token takes
        transformers as long as a small layer takes."""

    def sync(self, policy: Policy) -> None:
        """Take over the weights of the policy."""
        self.policy = policy

    def rest(self) -> None:
        """Free the memory that sampling left; the weights are still needed to train."""
        if self.stops.device.type == "cpu":
            trim_heap()

    @torch.inference_mode()
    def sample(
        self,
        prompts: Prompts,
        contexts: np.ndarray,
        counts: np.ndarray,
        draws: Draws,
        temperature: float,
        limit: int,
        ended: OnResponses = ignore,
        truncation: Truncation = WHOLE,
    ) -> Rollouts:
        """Sample as `Engine.sample` does, with prompts of similar length together, `compute.sample_rows` responses at a
        time."""
        self.policy.settle()
        group = np.repeat(np.arange(len(prompts)), counts)
        rollout = np.arange(len(group)) - np.repeat(np.cumsum(counts) - counts, counts)
        tokens, logp = np.zeros((len(group), limit), dtype=np.int64), np.zeros((len(group), limit))
        lengths, finished = np.zeros(len(group), dtype=np.int64), np.zeros(len(group), dtype=bool)
        order = np.argsort([len(prompts[g]) for g in group], kind="stable")
        for first in range(0, len(group), self.policy.compute.sample_rows):
            rows = order[first : first + self.policy.compute.sample_rows]
            part = _Part(self, [prompts[g] for g in group[rows]], group[rows], temperature, truncation)
            keys = (np.asarray(contexts)[group[rows]], rollout[rows])
            part.run(draws, keys, limit, ended)
            width = part.tokens.shape[1]
            tokens[rows, :width], logp[rows, :width] = part.tokens, part.logp
            lengths[rows], finished[rows] = part.lengths, part.finished
        real = np.arange(limit) < lengths[:, None]
        starts = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64)
        return Rollouts(Responses(tuple(prompts), group, tokens[real], starts), logp[real], finished)


class _Part:
    """Responses that are sampled side by side, one token each per step. Ended ones are removed when they are half of
    all."""

    def __init__(
        self,
        engine: HFEngine,
        prompts: list[tuple[int, ...]],
        group: np.ndarray,
        temperature: float,
        truncation: Truncation,
    ):
        self.engine, self.prompts, self.temperature, self.truncation = engine, prompts, temperature, truncation
        self.model, self.device, self.group = engine.policy.model, torch.device(engine.policy.compute.device), group
        _, self.first, self.source = np.unique(group, return_index=True, return_inverse=True)

    def run(self, draws: Draws, keys: tuple[np.ndarray, np.ndarray], limit: int, on_responses: OnResponses) -> None:
        """Sample the responses: fill tokens, logp (n, steps), lengths, finished (n,)."""
        n = len(self.prompts)
        self.lengths, self.finished = np.full(n, limit), np.zeros(n, dtype=bool)
        tokens, logp = torch.zeros((n, limit), dtype=torch.int64), torch.zeros((n, limit), dtype=torch.float64)
        logits = self._read_prompts(limit)
        alive = np.arange(n)
        for step in range(limit):
            if step % AHEAD == 0 and self.temperature > 0:
                numbers = uniforms(*draws, *keys, step, min(AHEAD, limit - step))
            uniform = torch.from_numpy(numbers[alive, step % AHEAD]).to(self.device) if self.temperature > 0 else None
            token, value = pick(logits, self.temperature, uniform, self.truncation)
            tokens[alive, step], logp[alive, step] = token.cpu(), value.cpu()
            ended = torch.isin(token, self.engine.stops).cpu().numpy() & ~self.finished[alive]
            # At the limit, all responses end that no stop id has ended.
            over = alive[ended if step + 1 < limit else ~self.finished[alive]]
            on_responses([(self.group[i], tokens[i, : step + 1].tolist()) for i in over])
            self.lengths[alive[ended]], self.finished[alive[ended]] = step + 1, True
            left = np.flatnonzero(~self.finished[alive])
            if len(left) == 0 or step + 1 == limit:
                break
            if 2 * len(left) <= len(alive):
                token, alive = self._keep(left, token), alive[left]
            logits = self._read(token[:, None], step)
        self.tokens, self.logp = tokens[:, : step + 1].numpy(), logp[:, : step + 1].numpy()

    def _read_prompts(self, limit: int) -> torch.Tensor:
        """Return logits (n, V) after the prompts. Each prompt is read once and then shared by its responses."""
        unique = [self.prompts[i] for i in self.first]
        width = max(map(len, unique))
        ids, mask = np.zeros((len(unique), width), dtype=np.int64), np.ones((len(unique), width + limit), dtype=bool)
        for row, prompt in enumerate(unique):
            ids[row, width - len(prompt) :] = prompt
            mask[row, : width - len(prompt)] = False
        self.width, self.mask = width, torch.from_numpy(mask).to(self.device)
        self.padding, self.padded = width - self.mask[:, :width].sum(1), not mask.all()
        self.cache: Any = None
        self.cache_name = ""
        logits = self._forward(
            torch.from_numpy(ids).to(self.device),
            torch.arange(width, device=self.device) - self.padding[:, None],
            width,
        )
        return logits if np.array_equal(self.source, np.arange(len(unique))) else self._keep(self.source, logits)

    def _keep(self, rows: np.ndarray, values: torch.Tensor) -> torch.Tensor:
        """Keep only these rows, some of which may be repeated."""
        index = torch.from_numpy(rows).to(self.device)
        self.cache.batch_select_indices(index)
        self.mask, self.padding = self.mask[index], self.padding[index]
        return values[index]

    def _read(self, token: torch.Tensor, step: int) -> torch.Tensor:
        """Return logits (n, V) after one more token (n, 1)."""
        return self._forward(token, (self.width + step - self.padding)[:, None], self.width + step + 1)

    def _forward(self, ids: torch.Tensor, positions: torch.Tensor, width: int) -> torch.Tensor:
        mask = self.mask[:, :width] if self.padded else None
        if mask is not None and ids.shape[1] == 1 and self.engine.masks_itself:
            mask = mask[:, None, None]
        read = {} if self.cache is None else {self.cache_name: self.cache}
        with autocast(self.engine.policy.compute):
            out = self.model(
                input_ids=ids,
                attention_mask=mask,
                position_ids=positions.clamp(min=0),
                use_cache=True,
                logits_to_keep=1,
                **read,
            )
        self.cache_name = "cache" if "cache" in out else "past_key_values"  # the name since transformers 5.24
        self.cache = out[self.cache_name]
        return out.logits[:, -1]


def pick(
    logits: torch.Tensor, temperature: float, uniform: torch.Tensor | None, truncation: Truncation = WHOLE
) -> tuple[torch.Tensor, torch.Tensor]:
    """Return a token (n,) of the truncated softmax(logits / temperature) for each uniform (n,), by the inverse of the
    distribution function, and its log-probability.

    Temperature 0 takes the most likely token, and its log-probability at temperature 1.
    """
    logits = logits if logits.dtype == torch.float64 else logits.float()
    logp = torch.log_softmax(truncation.of_logits(logits / temperature) if temperature > 0 else logits, -1)
    if temperature == 0:
        token = logp.argmax(-1)
    else:
        assert uniform is not None  # there is one for each token that is drawn
        # The sum is not exactly 1, so the uniform is scaled to it; no draw then falls beyond the last token.
        below = logp.double().exp().cumsum(-1)
        token = torch.searchsorted(below, (uniform * below[:, -1])[:, None], right=True)[:, 0].clamp(
            max=logits.shape[-1] - 1
        )
    return token, logp.gather(-1, token[:, None])[:, 0].double()
