"""Measure the abilities of a base model before training: at lower temperatures, by a vote, in several tries.

Sharpening makes likely answers likelier and teaches nothing new, so its limit is the share of questions whose most
likely answer is right. A vote of many responses finds that answer, and a vote of few misses it where answers are many.
An answer that is right once in many tries can be learned from rewards, but not by sharpening alone.

    pass@k        right at least once in k tries, unbiased from m >= k responses (2107.03374, eq. 1)
    maj@k         the answer that most of k responses give is right, over disjoint groups of k; answers that tie share
                  (2203.11171). A response without an answer does not vote.
    credit        Pass@1 by another parser, greedily, with examples in the prompt, or by a vote, less the strict Pass@1
                  at the temperature of training, on the same questions: what the harness does not give
    entropy       of a token, nats: the mean of -log pi over sampled tokens, whose expectation it is
    silent        share of groups of k responses whose rewards are all equal

Questions count as drawn at random; errors are those of a jackknife over them.
"""

from math import sqrt
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from rftlab.shared.evalstats import pass_at_k
from rftlab.shared.plumbing.errors import check
from rftlab.studies.data.results.stats import Estimate, Mean, t_errors
from rftlab.studies.forecast.pilot.noise import jackknife_error

if TYPE_CHECKING:
    from rftlab.llm.probe import HeadroomAnswers, SplitAnswers

VOTES = (4, 16, 64)
"""Numbers of responses in a vote."""
TRIES = (1, 2, 4, 8, 16, 32, 64)
"""Values of k in pass@k."""
GROUP, GROUPS = 8, (2, 4, 8, 16, 32, 64)
"""Sizes of groups whose zero-variance share is measured: the first always, the others where there are enough
responses."""


class RateAt(NamedTuple):
    """Share of questions or responses at a temperature, in k tries, or by k votes."""

    at: float
    value: float
    error: float
    questions: int
    responses: int
    """Number of responses to each question."""

    def interval(self) -> Estimate:
        """Return the 95% interval for questions drawn at random. It is Wilson's, with as many independent trials as the
        error stands for, so that it has a width where no response, or each one, is right."""
        p, n = self.value, self.questions
        if n < 2:
            return Estimate(p, 0.0, 1.0)
        trials = p * (1 - p) / self.error**2 if self.error > 0 else n
        square = float(t_errors(n - 1)) ** 2 / trials
        middle, half = (p + square / 2) / (1 + square), sqrt(square * (p * (1 - p) + square / 4)) / (1 + square)
        return Estimate(p, max(0.0, middle - half), min(1.0, middle + half))

    def spread(self) -> Estimate:
        """Return the 95% t interval of a mean that is no share. Where no question differs, it is as if one did."""
        return Mean(self.value, self.error or 1 / self.questions, self.questions - 1).interval()


class Credit(NamedTuple):
    """Pass@1 of a base model by one way to count, without any training."""

    name: str
    rate: RateAt
    gain: RateAt | None
    """Gain over the strict Pass@1 at the temperature of training on the same questions; None for that Pass@1 itself."""


class Headroom(NamedTuple):
    """Abilities of a base model, measured on unseen questions. The share of zero-variance groups is that of training
    questions."""

    temperatures: tuple[RateAt, ...]
    """Pass@1 at several temperatures."""
    majority: tuple[RateAt, ...]
    """Shares of questions that are right by a vote, maj@k."""
    tries: tuple[RateAt, ...]
    """Shares of questions that are right in k tries, pass@k."""
    silent: RateAt | None
    """Share of zero-variance groups of GROUP responses; None where questions have fewer responses."""
    silences: tuple[RateAt, ...] = ()
    """Share of zero-variance groups of each size in GROUPS for which there are enough responses."""
    credit: tuple[Credit, ...] = ()
    """Pass@1 by each way to count, first that of the harness. () in files of versions that did not measure it."""
    entropy: RateAt | None = None
    """Entropy of a token in nats at the temperature of training; None in files of versions that did not measure it."""


def majority(answers: np.ndarray, right: np.ndarray, k: int) -> np.ndarray:
    """Return the share (n,) of disjoint groups of k responses in which the answer that most give is right; of answers
    that tie, the share that is right counts.

    answers (n, m): which answer each response gives, -1 for none, which does not vote. right (n, m): 0 or 1, equal for
    equal answers.
    """
    check(1 <= k <= answers.shape[1], f"k = {k}; allowed: 1 to {answers.shape[1]}, the responses to a question")
    shares = np.zeros(len(answers))
    groups = answers.shape[1] // k
    for i, (row, reward) in enumerate(zip(answers, right, strict=True)):
        for g in range(groups):
            part = slice(g * k, (g + 1) * k)
            names, first, votes = np.unique(row[part], return_index=True, return_counts=True)
            votes = np.where(names < 0, 0, votes)
            if votes.max() > 0:
                shares[i] += reward[part][first[votes == votes.max()]].mean() / groups
    return shares


def mean_rate(at: float, values: np.ndarray, responses: int) -> RateAt:
    """Return the mean of a value (n,) per question, with the error for questions drawn at random; nan for one."""
    error = float(values.std(ddof=1)) / sqrt(len(values)) if len(values) > 1 else float("nan")
    return RateAt(float(at), float(values.mean()), error, len(values), responses)


def measure_credit(test: "SplitAnswers", further: "HeadroomAnswers", temperature: float) -> tuple[Credit, ...]:
    """Return Pass@1 in the harness, and what each easier way to count adds, question by question."""
    strict, m, q = test.strict.mean(axis=1), test.strict.shape[1], further.questions
    rows = [Credit(f"strict, temperature {temperature:g}", mean_rate(temperature, strict, m), None)]

    def add(name: str, at: float, values: np.ndarray, own: np.ndarray, responses: int) -> None:
        rows.append(Credit(name, mean_rate(at, values, responses), mean_rate(at, values - own, responses)))

    add("lenient parser", temperature, test.flexible.mean(axis=1), strict, m)
    for name, right in (("greedy", further.greedy), (f"greedy, {further.shots} examples", further.few_shot)):
        for parser, values in zip(("", ", lenient parser"), right.T, strict=True):
            if len(right):
                add(name + parser, 0.0, values, strict[q], 1)
    for k in [k for k in VOTES if k <= m][-1:]:
        add(f"vote of {k}", temperature, majority(test.answers, test.strict, k), strict, m)
    return tuple(rows)


def measure_entropy(surprise: np.ndarray, lengths: np.ndarray, temperature: float) -> RateAt:
    """Return the entropy of a token from -log pi and tokens of responses (n, m), with a jackknife error."""
    nats, tokens = surprise.sum(axis=1), lengths.sum(axis=1)
    left = (nats.sum() - nats) / (tokens.sum() - tokens)
    error = float(jackknife_error(left)) if len(nats) > 1 else float("nan")
    return RateAt(temperature, float(nats.sum() / tokens.sum()), error, *lengths.shape)


def measure_votes(answers: np.ndarray, right: np.ndarray, ks: tuple[int, ...] = VOTES) -> tuple[RateAt, ...]:
    """Return maj@k for each k that there are responses for, from tables (n, m)."""
    m = answers.shape[1]
    return tuple(mean_rate(k, majority(answers, right, k), m) for k in ks if k <= m)


def measure_tries(counts: np.ndarray, m: int, ks: tuple[int, ...] = TRIES) -> tuple[RateAt, ...]:
    """Return pass@k for each k <= m, from counts (n,) of right responses among m."""
    return tuple(mean_rate(k, pass_at_k(m, counts, k), m) for k in ks if k <= m)


def measure_silence(counts: np.ndarray, m: int, k: int = GROUP) -> RateAt | None:
    """Return the share of groups of k with rewards all 0 or all 1, unbiased from counts (n,) of m; None where k > m."""
    return mean_rate(k, 2 - pass_at_k(m, counts, k) - pass_at_k(m, m - counts, k), m) if k <= m else None
