"""The buffer of right responses that join the groups of later rounds (`Sampling.replayed`)."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from rftlab.llm.engines.rollouts import Rollouts
from rftlab.llm.policy.responses import Responses, packed, token_indices
from rftlab.llm.rewards.call import Rewarded
from rftlab.llm.training.samples import Samples
from rftlab.shared.plumbing.errors import check


class Replay(NamedTuple):
    """A right response of n tokens, with what it was sampled with."""

    tokens: np.ndarray
    """(n,) ids."""
    text: str
    old_logp: np.ndarray
    """(n,) log-probabilities under the trainer's policy of its round."""
    sampler_logp: np.ndarray
    """(n,) those of the engine."""
    scores: tuple[float, float, float]
    """Strict, flexible, and the reward before penalties."""


class Replays:
    """At most `most` right responses of each prompt, the newest ones."""

    def __init__(self, most: int):
        self.most = most
        self.of_prompt: dict[int, list[Replay]] = {}

    def push(self, samples: Samples, old_T: np.ndarray) -> None:
        """Take in the new responses that ended and whose reward is 1 or more. old_T (T,): log-probabilities at the
        start of their round."""
        responses, logp_T = samples.rollouts.responses, samples.rollouts.logp
        for i in np.flatnonzero((samples.reward >= 1) & samples.rollouts.finished & ~samples.replayed):
            part = slice(responses.starts[i], responses.starts[i + 1])
            scores = float(samples.strict[i]), float(samples.flexible[i]), float(samples.reward[i])
            replay = Replay(responses.tokens[part], samples.texts[i], old_T[part].copy(), logp_T[part].copy(), scores)
            kept = self.of_prompt.setdefault(int(samples.contexts[responses.group[i]]), [])
            kept.append(replay)
            del kept[: -self.most]

    def join(self, samples: Samples) -> tuple[Samples, np.ndarray]:
        """Put the responses that are held for its prompts behind the new ones of each group; and log-probabilities
        (T,) under the policies that sampled them, nan for new responses. Raises UserError where rewards are of
        tokens."""
        check(samples.steps is None, "sampling.replayed with rewards of tokens; allowed: rewards of whole responses")
        held = [self.of_prompt.get(int(context), []) for context in samples.contexts]
        replays, new = [one for kept in held for one in kept], samples.rollouts.responses
        tokens_t, starts_r = packed([one.tokens.tolist() for one in replays])
        group_R = np.concatenate([new.group, np.repeat(np.arange(len(held)), [len(kept) for kept in held])])
        starts_R = np.concatenate([new.starts, starts_r[1:] + new.starts[-1]])
        order_R = np.argsort(group_R, kind="stable")
        order_T = token_indices(starts_R, order_R)

        def both(ours: Sequence | np.ndarray, theirs: Sequence | np.ndarray) -> np.ndarray:
            kind = np.asarray(ours).dtype
            return np.concatenate([np.asarray(ours), np.asarray(theirs, dtype=kind)])[order_R]

        def tokens(ours: np.ndarray, theirs: list[np.ndarray]) -> np.ndarray:
            return np.concatenate([ours, *theirs])[order_T]

        responses = Responses(new.prompts, group_R, np.concatenate([new.tokens, tokens_t]), starts_R).take(order_R)
        logp_T = tokens(samples.rollouts.logp, [one.sampler_logp for one in replays])
        old_T = tokens(np.full(len(new.tokens), np.nan), [one.old_logp for one in replays])
        old = np.ones(len(replays), dtype=bool)
        strict, flexible, reward = np.array([one.scores for one in replays]).reshape(-1, 3).T
        texts = [*samples.texts, *(one.text for one in replays)]
        own = samples.own
        if own is not None:
            unknown = {name: both(values, np.full(len(replays), np.nan)) for name, values in own.by_name.items()}
            own = Rewarded(both(own.outcome, reward), None, unknown, own.weights)
        joined = samples._replace(
            rollouts=Rollouts(responses, logp_T, both(samples.rollouts.finished, old)),
            texts=[texts[i] for i in order_R],
            strict=both(samples.strict, strict),
            flexible=both(samples.flexible, flexible),
            trained=both(samples.trained, old),
            own=own,
            is_replay=both(np.zeros(len(new.group), dtype=bool), old),
        )
        return joined, old_T

    def arrays(self) -> dict[str, np.ndarray]:
        """Return the buffer as arrays, for a checkpoint."""
        held = [(context, one) for context, kept in self.of_prompt.items() for one in kept]
        tokens, starts = packed([one.tokens.tolist() for _, one in held])
        text, text_starts = packed([list(one.text.encode("utf-8", "surrogatepass")) for _, one in held])
        return {
            "prompt": np.array([context for context, _ in held], dtype=np.int64),
            "tokens": tokens,
            "starts": starts,
            "text": text.astype(np.uint8),
            "text_starts": text_starts,
            "old_logp": np.concatenate([np.zeros(0), *(one.old_logp for _, one in held)]),
            "sampler_logp": np.concatenate([np.zeros(0), *(one.sampler_logp for _, one in held)]),
            "scores": np.array([one.scores for _, one in held]).reshape(-1, 3),
        }

    def restore(self, arrays: dict[str, np.ndarray]) -> None:
        """Hold what `arrays` gave."""
        self.of_prompt, starts, text_starts = {}, arrays["starts"], arrays["text_starts"]
        for i, context in enumerate(arrays["prompt"]):
            part = slice(starts[i], starts[i + 1])
            text = bytes(arrays["text"][text_starts[i] : text_starts[i + 1]]).decode("utf-8", "surrogatepass")
            strict, flexible, reward = map(float, arrays["scores"][i])
            tokens, old, sampler = (arrays[name][part] for name in ("tokens", "old_logp", "sampler_logp"))
            replay = Replay(tokens, text, old, sampler, (strict, flexible, reward))
            self.of_prompt.setdefault(int(context), []).append(replay)
