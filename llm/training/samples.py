"""The samples of a round: responses to a batch of prompts, scored twice, and where their baselines come from."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from rftlab.llm.engines.rollouts import OnResponses, Rollouts, ignore
from rftlab.llm.models.load import Problems
from rftlab.llm.policy.responses import Responses, token_indices
from rftlab.llm.rewards.call import RewardBatch, RewardCaller, Rewarded
from rftlab.llm.rewards.math_pool import Checks, MathPool
from rftlab.llm.rewards.verify import in_doubt, needs_pool, score
from rftlab.llm.text.codec import Codec
from rftlab.shared.design import Design
from rftlab.shared.memory import Windows, window_pool
from rftlab.shared.plumbing.pool import Pool, make_pool
from rftlab.shared.sampling import keep_shortest


class Samples(NamedTuple):
    """Scored responses to G prompts; those of a prompt lie side by side, support rollouts behind the trained ones."""

    contexts: np.ndarray
    """(G,) numbers of the prompts."""
    rollouts: Rollouts
    texts: list[str]
    strict: np.ndarray
    """(R,) rewards that are trained on, where a user brings none."""
    flexible: np.ndarray
    """(R,)"""
    trained: np.ndarray
    """(R,) bool; the others are support rollouts."""
    own: Rewarded | None = None
    """Rewards of a user's functions, in place of the strict ones."""
    is_replay: np.ndarray | None = None
    """(R,) bool: responses of earlier rounds; None where there are none."""

    @property
    def replayed(self) -> np.ndarray:
        """(R,) whether a response is of an earlier round."""
        return np.zeros(len(self.texts), dtype=bool) if self.is_replay is None else self.is_replay

    @property
    def group(self) -> np.ndarray:
        """(R,) index of each response's prompt."""
        return self.rollouts.responses.group

    @property
    def new(self) -> np.ndarray:
        """Rows of the responses that this round sampled to train on."""
        return np.flatnonzero(self.trained & ~self.replayed)

    def differ(self) -> np.ndarray:
        """(G,) whether a group's rewards differ."""
        lowest_G, highest_G = np.full(len(self.contexts), np.inf), np.full(len(self.contexts), -np.inf)
        np.minimum.at(lowest_G, self.group, self.reward)
        np.maximum.at(highest_G, self.group, self.reward)
        return lowest_G < highest_G

    @property
    def outcome(self) -> np.ndarray:
        """(R,) rewards of whole responses that are trained on."""
        return self.strict if self.own is None else self.own.outcome

    @property
    def steps(self) -> np.ndarray | None:
        """(T,) rewards of tokens, beside the outcome; None where there are none."""
        return None if self.own is None else self.own.steps

    @property
    def several(self) -> tuple[np.ndarray, np.ndarray] | None:
        """Rewards (C, R) of a user's functions and their weights (C,); None where there are none."""
        return None if self.own is None else (np.array(list(self.own.by_name.values())), np.array(self.own.weights))

    @property
    def reward(self) -> np.ndarray:
        """(R,) outcome and rewards of tokens together."""
        if self.steps is None:
            return self.outcome
        row_T = np.repeat(np.arange(len(self.texts)), self.rollouts.responses.lengths)
        return self.outcome + np.bincount(row_T, weights=self.steps, minlength=len(self.texts))


class Judge(NamedTuple):
    """The function that turns responses into rewards."""

    verifier: str
    codec: Codec
    pool: MathPool
    rewards: RewardCaller | None = None
    """A user's functions; None where the strict reward is trained on."""

    def early(self, truths: Sequence[str]) -> OnResponses:
        """Has math-verify begin with responses as they end, while others are still sampled; `scored` then finds its
        replies. truths: of the prompts (G,)."""

        def ended(responses: Sequence[tuple[int, Sequence[int]]]) -> None:
            pairs = [in_doubt(self.verifier, self.codec.decode(list(tokens)), truths[g]) for g, tokens in responses]
            self.pool.submit([pair for pair in pairs if pair])

        return ended if needs_pool(self.verifier) else ignore

    def scored(
        self,
        rollouts: Rollouts,
        contexts: np.ndarray,
        truths: Sequence[str],
        support: int = 0,
        *,
        problems: Problems | None = None,
        place: str = "",
    ) -> tuple[Samples, Checks]:
        """Samples from rollouts of prompts (G,), whose last `support` of each group are not trained on; and what
        math-verify did. problems (G,) and the place, in words, are for a user's rewards, which may refuse."""
        responses = rollouts.responses
        texts = [self.codec.decode(responses.response(i).tolist()) for i in range(len(responses.group))]
        scores = score(self.verifier, texts, [truths[g] for g in responses.group], self.pool)
        counts_G = np.bincount(responses.group, minlength=len(contexts))
        rank_R = np.arange(len(texts)) - np.repeat(np.cumsum(counts_G) - counts_G, counts_G)
        trained_R = rank_R < np.repeat(counts_G - support, counts_G)
        own = (
            None if self.rewards is None or problems is None else self.rewards(_asked(rollouts, texts, problems, place))
        )
        return Samples(contexts, rollouts, texts, scores.strict, scores.flexible, trained_R, own), scores.checks


def _asked(rollouts: Rollouts, texts: Sequence[str], problems: Problems, place: str) -> RewardBatch:
    """The arguments of a user's rewards."""
    responses, rows = rollouts.responses, problems.rows or ({},) * len(problems.answers)
    tokens = [responses.response(i).tolist() for i in range(len(texts))]
    return RewardBatch(place, problems.numbers, problems.shown, problems.answers, rows, responses.group, texts, tokens)


def chosen(samples: Samples, groups: np.ndarray) -> Samples:
    """The samples of some groups, renumbered in their order."""
    rows_r = (
        np.concatenate([np.flatnonzero(samples.group == g) for g in groups])
        if len(groups)
        else np.zeros(0, dtype=np.int64)
    )
    old = samples.rollouts.responses
    taken = old.take(rows_r)
    number = {g: i for i, g in enumerate(groups)}
    responses = Responses(
        tuple(old.prompts[g] for g in groups),
        np.array([number[g] for g in taken.group], dtype=np.int64),
        taken.tokens,
        taken.starts,
    )
    rollouts = Rollouts(
        responses, samples.rollouts.logp[token_indices(old.starts, rows_r)], samples.rollouts.finished[rows_r]
    )
    columns = (samples.strict[rows_r], samples.flexible[rows_r], samples.trained[rows_r])
    own = None if samples.own is None else samples.own.take(rows_r, token_indices(old.starts, rows_r))
    return Samples(samples.contexts[groups], rollouts, [samples.texts[i] for i in rows_r], *columns, own)


def joined(a: Samples, b: Samples) -> Samples:
    """The groups of `a`, then those of `b`."""
    x, y = a.rollouts.responses, b.rollouts.responses
    group_R, tokens_T = np.concatenate([x.group, y.group + len(x.prompts)]), np.concatenate([x.tokens, y.tokens])
    responses = Responses(
        x.prompts + y.prompts, group_R, tokens_T, np.concatenate([x.starts, y.starts[1:] + x.starts[-1]])
    )
    logp_T, finished_R = (np.concatenate([getattr(s.rollouts, name) for s in (a, b)]) for name in ("logp", "finished"))
    strict, flexible, trained = (
        np.concatenate([getattr(s, name) for s in (a, b)]) for name in ("strict", "flexible", "trained")
    )
    own = None if a.own is None or b.own is None else a.own.followed_by(b.own)
    rollouts, texts = Rollouts(responses, logp_T, finished_R), a.texts + b.texts
    return Samples(np.concatenate([a.contexts, b.contexts]), rollouts, texts, strict, flexible, trained, own)


def with_signal(kept: Samples | None, tried: Samples, wanted: int, is_last: bool) -> tuple[Samples, Samples]:
    """`kept` and the groups of one more try whose rewards differ, up to `wanted`; after the last try zero-variance
    groups fill what is missing. And the rest."""
    differ_G, have = tried.differ(), 0 if kept is None else len(kept.contexts)
    room = wanted - have - int(differ_G.sum()) if is_last else 0
    silent_g = np.flatnonzero(~differ_G)[: max(0, room)]
    taken_g = np.sort(np.concatenate([np.flatnonzero(differ_G), silent_g]))[: wanted - have]
    fresh, rest = chosen(tried, taken_g), chosen(tried, np.setdiff1d(np.arange(len(differ_G)), taken_g))
    return fresh if kept is None else joined(kept, fresh), rest


def baseline_sets(
    design: Design, samples: Samples, rewards: np.ndarray, windows: Windows | None
) -> tuple[Pool, np.ndarray]:
    """The baseline sets of the groups, and which trained rows (n,) are kept; rewards (R,) as shaped, already in the
    windows."""
    n, trained_R, rows_r = len(samples.contexts), samples.trained, np.flatnonzero(samples.trained)
    kept_r = np.ones(len(rows_r), dtype=bool)
    if design.sampling.keep:
        first = np.concatenate([[0], np.cumsum(np.bincount(samples.group[rows_r], minlength=n))])
        kept_r = keep_shortest(samples.rollouts.responses.lengths[rows_r], first, design.sampling.keep)
    if windows is None:
        current = (rewards[rows_r[kept_r]], samples.group[rows_r[kept_r]])
    else:
        past = window_pool(windows, samples.contexts)
        current = (past.rewards, np.repeat(np.arange(n), np.diff(past.starts)))
    return make_pool(n, current, (rewards[~trained_R], samples.group[~trained_R])), kept_r
