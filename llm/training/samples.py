"""What a round samples: responses to a batch of prompts, scored twice, and where their baselines come from."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from rftlab.llm.engines.rollouts import OnResponses, Rollouts, ignore
from rftlab.llm.policy.responses import Responses, token_indices
from rftlab.llm.rewards.math_pool import Checks, MathPool
from rftlab.llm.rewards.verify import in_doubt, needs_pool, score
from rftlab.llm.text.codec import Codec
from rftlab.shared.design import Design
from rftlab.shared.pool import Pool, pool_of
from rftlab.shared.replay import Windows, window_pool
from rftlab.shared.sampling import keep_shortest


class Samples(NamedTuple):
    """Scored responses to G prompts; those of a prompt lie side by side, support rollouts behind the trained ones."""

    contexts: np.ndarray
    """(G,) numbers of the prompts."""
    rollouts: Rollouts
    texts: list[str]
    strict: np.ndarray
    """(R,) rewards that are trained on."""
    flexible: np.ndarray
    """(R,)"""
    trained: np.ndarray
    """(R,) bool; the others are support rollouts."""

    @property
    def group(self) -> np.ndarray:
        """(R,) index of each response's prompt."""
        return self.rollouts.responses.group

    def differ(self) -> np.ndarray:
        """(G,) whether a group's rewards differ."""
        counts = np.bincount(self.group, minlength=len(self.contexts))
        right = np.bincount(self.group, weights=self.strict, minlength=len(self.contexts))
        return (right > 0) & (right < counts)


class Judge(NamedTuple):
    """What turns responses into rewards."""

    verifier: str
    codec: Codec
    pool: MathPool

    def early(self, truths: Sequence[str]) -> OnResponses:
        """Has math-verify begin with responses as they end, while others are still sampled; `scored` then finds its
        replies. truths: of the prompts (G,)."""

        def ended(responses: Sequence[tuple[int, Sequence[int]]]) -> None:
            pairs = [in_doubt(self.verifier, self.codec.decode(list(tokens)), truths[g]) for g, tokens in responses]
            self.pool.submit([pair for pair in pairs if pair])

        return ended if needs_pool(self.verifier) else ignore

    def scored(
        self, rollouts: Rollouts, contexts: np.ndarray, truths: Sequence[str], support: int = 0
    ) -> tuple[Samples, Checks]:
        """Samples from rollouts of prompts (G,), whose last `support` of each group are not trained on; and what
        math-verify did."""
        responses = rollouts.responses
        texts = [self.codec.decode(responses.response(i).tolist()) for i in range(len(responses.group))]
        scores = score(self.verifier, texts, [truths[g] for g in responses.group], self.pool)
        counts = np.bincount(responses.group, minlength=len(contexts))
        rank = np.arange(len(texts)) - np.repeat(np.cumsum(counts) - counts, counts)
        trained = rank < np.repeat(counts - support, counts)
        return Samples(contexts, rollouts, texts, scores.strict, scores.flexible, trained), scores.checks


def chosen(samples: Samples, groups: np.ndarray) -> Samples:
    """The samples of some groups, renumbered in their order."""
    rows = (
        np.concatenate([np.flatnonzero(samples.group == g) for g in groups])
        if len(groups)
        else np.zeros(0, dtype=np.int64)
    )
    old = samples.rollouts.responses
    taken = old.take(rows)
    number = {g: i for i, g in enumerate(groups)}
    responses = Responses(
        tuple(old.prompts[g] for g in groups),
        np.array([number[g] for g in taken.group], dtype=np.int64),
        taken.tokens,
        taken.starts,
    )
    rollouts = Rollouts(
        responses, samples.rollouts.logp[token_indices(old.starts, rows)], samples.rollouts.finished[rows]
    )
    columns = (samples.strict[rows], samples.flexible[rows], samples.trained[rows])
    return Samples(samples.contexts[groups], rollouts, [samples.texts[i] for i in rows], *columns)


def joined(a: Samples, b: Samples) -> Samples:
    """The groups of `a`, then those of `b`."""
    x, y = a.rollouts.responses, b.rollouts.responses
    group, tokens = np.concatenate([x.group, y.group + len(x.prompts)]), np.concatenate([x.tokens, y.tokens])
    responses = Responses(x.prompts + y.prompts, group, tokens, np.concatenate([x.starts, y.starts[1:] + x.starts[-1]]))
    logp, finished = (np.concatenate([getattr(s.rollouts, name) for s in (a, b)]) for name in ("logp", "finished"))
    columns = (np.concatenate([getattr(s, name) for s in (a, b)]) for name in ("strict", "flexible", "trained"))
    return Samples(
        np.concatenate([a.contexts, b.contexts]), Rollouts(responses, logp, finished), a.texts + b.texts, *columns
    )


def with_signal(found: Samples | None, tried: Samples, wanted: int, is_last: bool) -> tuple[Samples, Samples]:
    """`found` and the groups of one more try whose rewards differ, up to `wanted`; after the last try silent groups
    fill what is missing. And the rest."""
    differ, have = tried.differ(), 0 if found is None else len(found.contexts)
    room = wanted - have - int(differ.sum()) if is_last else 0
    silent = np.flatnonzero(~differ)[: max(0, room)]
    taken = np.sort(np.concatenate([np.flatnonzero(differ), silent]))[: wanted - have]
    fresh, rest = chosen(tried, taken), chosen(tried, np.setdiff1d(np.arange(len(differ)), taken))
    return fresh if found is None else joined(found, fresh), rest


def baseline_sets(
    design: Design, samples: Samples, rewards: np.ndarray, windows: Windows | None
) -> tuple[Pool, np.ndarray]:
    """The baseline sets of the groups, and which trained rows (n,) are kept; rewards (R,) as shaped, already in the
    windows."""
    n, trained, rows = len(samples.contexts), samples.trained, np.flatnonzero(samples.trained)
    kept = np.ones(len(rows), dtype=bool)
    if design.sampling.keep:
        first = np.concatenate([[0], np.cumsum(np.bincount(samples.group[rows], minlength=n))])
        kept = keep_shortest(samples.rollouts.responses.lengths[rows], first, design.sampling.keep)
    if windows is None:
        current = (rewards[rows[kept]], samples.group[rows[kept]])
    else:
        past = window_pool(windows, samples.contexts)
        current = (past.rewards, np.repeat(np.arange(n), np.diff(past.starts)))
    return pool_of(n, current, (rewards[~trained], samples.group[~trained])), kept
