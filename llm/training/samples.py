"""Collect the samples of a round: responses to a batch of prompts with two scores, their baseline sets, and the buffer
of right responses that join the groups of later rounds (`Sampling.replayed`)."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from rftlab.llm.engines.rollouts import OnResponses, Rollouts, ignore
from rftlab.llm.models.load import Problems
from rftlab.llm.policy.packing import Responses, packed, token_indices
from rftlab.llm.rewards.call import RewardBatch, RewardCaller, Rewarded
from rftlab.llm.rewards.math_pool import Checks, MathPool
from rftlab.llm.rewards.verify import in_doubt, needs_pool, score
from rftlab.llm.tasks.codec import Codec
from rftlab.shared.design import Design
from rftlab.shared.memory import Windows, window_pool
from rftlab.shared.plumbing.errors import check
from rftlab.shared.plumbing.pool import Pool, make_pool
from rftlab.shared.sampling import keep_shortest


class Samples(NamedTuple):
    """Scored responses to G prompts. Those of a prompt are side by side, and support rollouts follow the trained
    ones."""

    contexts: np.ndarray
    """(G,) numbers of the prompts."""
    rollouts: Rollouts
    texts: list[str]
    strict: np.ndarray
    """(R,) strict rewards, which are trained on unless a user gives others."""
    flexible: np.ndarray
    """(R,) flexible rewards."""
    trained: np.ndarray
    """(R,) bool; the others are support rollouts."""
    own: Rewarded | None = None
    """Rewards of a user's functions, which replace the strict ones in training."""
    is_replay: np.ndarray | None = None
    """(R,) bool, responses of earlier rounds; None where there are none."""

    @property
    def replayed(self) -> np.ndarray:
        """(R,) bool, whether a response was sampled in an earlier round."""
        return np.zeros(len(self.texts), dtype=bool) if self.is_replay is None else self.is_replay

    @property
    def group(self) -> np.ndarray:
        """(R,) index of each response's prompt."""
        return self.rollouts.responses.group

    @property
    def new(self) -> np.ndarray:
        """Rows of the responses that were sampled in this round to be trained on."""
        return np.flatnonzero(self.trained & ~self.replayed)

    def differ(self) -> np.ndarray:
        """Return whether (G,) a group's rewards differ."""
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
        """(T,) rewards of tokens in addition to the outcome; None where there are none."""
        return None if self.own is None else self.own.steps

    @property
    def several(self) -> tuple[np.ndarray, np.ndarray] | None:
        """Rewards (C, R) of a user's functions and their weights (C,); None where there are none."""
        return None if self.own is None else (np.array(list(self.own.by_name.values())), np.array(self.own.weights))

    @property
    def reward(self) -> np.ndarray:
        """(R,) outcome plus the rewards of the response's tokens."""
        if self.steps is None:
            return self.outcome
        row_T = np.repeat(np.arange(len(self.texts)), self.rollouts.responses.lengths)
        return self.outcome + np.bincount(row_T, weights=self.steps, minlength=len(self.texts))


class Judge(NamedTuple):
    """Scorer that turns responses into rewards."""

    verifier: str
    codec: Codec
    pool: MathPool
    rewards: RewardCaller | None = None
    """Caller of a user's functions; None where the strict reward is trained on."""

    def early(self, truths: Sequence[str]) -> OnResponses:
        """Return a listener that lets math-verify begin with responses as they end, while others are still sampled;
        `scored` then uses its replies. truths: of the prompts (G,)."""

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
        """Return samples from rollouts of prompts (G,), whose last `support` of each group are not trained on, and the
        counts of math-verify. problems (G,) and the place, in words, are for a user's rewards, which may raise
        UserError."""
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
    """Return the arguments of a user's rewards."""
    responses, rows = rollouts.responses, problems.rows or ({},) * len(problems.answers)
    tokens = [responses.response(i).tolist() for i in range(len(texts))]
    return RewardBatch(place, problems.numbers, problems.shown, problems.answers, rows, responses.group, texts, tokens)


def chosen(samples: Samples, groups: np.ndarray) -> Samples:
    """Return the samples of some groups, renumbered in their order."""
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
    """Return the groups of `a` followed by those of `b`."""
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
    """Return `kept` with the groups of one more try whose rewards differ, up to `wanted`, and the remaining groups.
    After the last try zero-variance groups fill up the number."""
    differ_G, have = tried.differ(), 0 if kept is None else len(kept.contexts)
    room = wanted - have - int(differ_G.sum()) if is_last else 0
    silent_g = np.flatnonzero(~differ_G)[: max(0, room)]
    taken_g = np.sort(np.concatenate([np.flatnonzero(differ_G), silent_g]))[: wanted - have]
    fresh, rest = chosen(tried, taken_g), chosen(tried, np.setdiff1d(np.arange(len(differ_G)), taken_g))
    return fresh if kept is None else joined(kept, fresh), rest


def baseline_sets(
    design: Design, samples: Samples, rewards: np.ndarray, windows: Windows | None
) -> tuple[Pool, np.ndarray]:
    """Return the baseline sets of the groups, and a mask of the trained rows (n,) that are kept; rewards (R,) after
    penalties, which are already in the windows."""
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


class Replay(NamedTuple):
    """A right response of n tokens, with its log-probabilities when it was sampled."""

    tokens: np.ndarray
    """(n,) token ids."""
    text: str
    old_logp: np.ndarray
    """(n,) log-probabilities under the trainer's policy of its round."""
    sampler_logp: np.ndarray
    """(n,) log-probabilities under the engine."""
    scores: tuple[float, float, float]
    """Strict and flexible reward, and the reward before penalties."""


class Replays:
    """Buffer of at most `most` right responses of each prompt, the newest ones."""

    def __init__(self, most: int):
        self.most = most
        self.of_prompt: dict[int, list[Replay]] = {}

    def push(self, samples: Samples, old_T: np.ndarray) -> None:
        """Store the new responses that ended and have a reward of 1 or more. old_T (T,): log-probabilities at the start
        of their round."""
        responses, logp_T = samples.rollouts.responses, samples.rollouts.logp
        for i in np.flatnonzero((samples.reward >= 1) & samples.rollouts.finished & ~samples.replayed):
            part = slice(responses.starts[i], responses.starts[i + 1])
            scores = float(samples.strict[i]), float(samples.flexible[i]), float(samples.reward[i])
            replay = Replay(responses.tokens[part], samples.texts[i], old_T[part].copy(), logp_T[part].copy(), scores)
            kept = self.of_prompt.setdefault(int(samples.contexts[responses.group[i]]), [])
            kept.append(replay)
            del kept[: -self.most]

    def join(self, samples: Samples) -> tuple[Samples, np.ndarray]:
        """Return samples in which the stored responses to each prompt follow the new ones of its group; and
        log-probabilities (T,) under the policies that sampled them, nan for new responses. Raises UserError for rewards
        of tokens."""
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
        """Restore the buffer from the result of `arrays`."""
        self.of_prompt, starts, text_starts = {}, arrays["starts"], arrays["text_starts"]
        for i, context in enumerate(arrays["prompt"]):
            part = slice(starts[i], starts[i + 1])
            text = bytes(arrays["text"][text_starts[i] : text_starts[i + 1]]).decode("utf-8", "surrogatepass")
            strict, flexible, reward = map(float, arrays["scores"][i])
            tokens, old, sampler = (arrays[name][part] for name in ("tokens", "old_logp", "sampler_logp"))
            replay = Replay(tokens, text, old, sampler, (strict, flexible, reward))
            self.of_prompt.setdefault(int(context), []).append(replay)
