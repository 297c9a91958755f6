"""Check parts of published recipes (T32 to T35): clips, importance weights, entropy, dynamic sampling. T31, on lengths,
is in algebra.py."""

from dataclasses import replace

import numpy as np

from rftlab.shared.config.correction import Correction, CorrectionLevel
from rftlab.shared.config.mask import ClipCov
from rftlab.shared.config.ratio import Ratio, RatioLevel
from rftlab.shared.config.sampling import Sampling
from rftlab.shared.config.surrogate import Clip
from rftlab.shared.design import Design
from rftlab.shared.estimator import Estimator
from rftlab.shared.objective import apply_mask, objective_and_weights
from rftlab.shared.plumbing.pool import Pool
from rftlab.shared.prepare import Batch, prepare
from rftlab.sim.config import Optimizer, Simulation, Tabular
from rftlab.sim.environments import tabular_world
from rftlab.sim.run import GeneralLearner
from rftlab.sim.state import no_totals
from rftlab.studies.theory.check import Claims, exact, positive, sampled, theory_check
from rftlab.studies.theory.models import (
    MEAN,
    RAW,
    REINFORCE,
    RLOO,
    Learners,
    PassRates,
    all_groups,
    binomial,
    by_count,
    gradient_moments,
    logit_moments,
    reinforce_with,
    softmax_policy,
    two_arms,
    zscore,
    zscore_factor,
)


def clipped_factor(surrogate, p: float, old: float, value: float) -> float:
    """Return W of a response drawn at pass rate `old`, for baseline `value`, in the one-logit model at pass rate p."""
    estimator, chance = reinforce_with(MEAN.advantage, surrogate), np.array([1 - old, old])
    weight = pair_weights(estimator, np.log([1 - p, p]), np.log([1 - old, old]), value)
    return float(chance @ (weight * [-p, 1 - p]) / (p * (1 - p)))


def pair_weights(estimator: Estimator, logp: np.ndarray, old: np.ndarray, value: float) -> np.ndarray:
    """Return the weights (2,) of a wrong and a right response with log-probabilities logp, drawn at old."""
    pool = Pool(np.full(4, value), np.array([0, 2, 4]))
    batch = prepare(estimator, np.array([0.0, 1.0]), np.arange(2), np.arange(3), old, pool=pool, n_rows=1)
    return objective_and_weights(estimator, batch, logp).weight


def last_push(surrogate, old: float, value: float) -> float:
    """Return the pass rate above `old` at which the gradient vanishes, by bisection; next to 1 where it does not."""
    low, high = old, 1 - 1e-9
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if clipped_factor(surrogate, middle, old, value) > 1e-9 else (low, middle)
    return high


@theory_check("T32")
def signed_clip(mutant: int) -> Claims:
    """Yield the claims of T32. Where r A > clip(r) A the derivative is 0: for A > 0 beyond 1+high, for A < 0 below
    1-low. Summed over the old policy's samples, a right response gives (1-b) p q and a wrong one b p q, each while it
    is not clipped."""
    low, high, old, value = 0.2, 0.28, 0.1, 0.3
    usual, higher = (REINFORCE, REINFORCE) if mutant else (Clip(low, low), Clip(low, high))
    for p in (0.05, 0.11, 0.125, 0.2, 0.35):
        for name, surrogate, top in (("ε = .2", usual, low), ("clip-higher .28", higher, high)):
            right, wrong = p <= (1 + top) * old, 1 - p >= (1 - low) * (1 - old)
            expected = (1 - value) * right + value * wrong
            yield exact(f"W, {name}, p_o=.1, p={p}", expected, clipped_factor(surrogate, p, old, value))
    for start in (0.01, 0.1):
        for name, surrogate, top in (("ε = .2", usual, low), ("clip-higher .28", higher, high)):
            yield exact(
                f"right alone, {name}, p_o={start}: ends at", (1 + top) * start, last_push(surrogate, start, 0.0)
            )
        ends = 1 - (1 - low) * (1 - start)
        yield exact(f"wrong alone, ε = .2, p_o={start}: ends at", ends, last_push(usual, start, 1.0))
    for name, surrogate, expected in (
        ("", usual, -50.0),
        (", dual clip 3", REINFORCE if mutant else Clip(low, low, 3.0), 0.0),
    ):
        estimator = reinforce_with(MEAN.advantage, surrogate)
        wrong, _ = pair_weights(estimator, np.log([0.5, 0.5]), np.log([0.01, 0.99]), 1.0)
        yield exact(f"weight of a wrong response at ratio 50, A = −1{name}", expected, float(wrong))


SAMPLER, TARGET = 0.6, 0.7
"""Chance of a right token under the policy that sampled, and under the trainer's, in T33."""


def token_sequences(length: int) -> tuple[np.ndarray, np.ndarray]:
    """Return all responses (2^L, L) of L tokens, 1 where a token is right, and their chances under the sampler."""
    tokens = all_groups(2, length).astype(np.float64)
    return tokens, np.where(tokens == 1, SAMPLER, 1 - SAMPLER).prod(axis=1)


def drawn_responses(estimator: Estimator, tokens: np.ndarray, rewards: np.ndarray) -> tuple[Batch, np.ndarray]:
    """Return all responses as a batch that the sampler drew, with the trainer's log-probabilities of their tokens. A
    ratio of another level than the token compares with the sampler; else the difference is corrected."""
    logp, sampler = (np.log(np.where(tokens == 1, p, 1 - p)).ravel() for p in (TARGET, SAMPLER))
    rows, starts = np.arange(len(tokens)), np.arange(len(tokens) + 1) * tokens.shape[1]
    old, given = (sampler, None) if estimator.ratio.level != "token" else (logp, sampler)
    return prepare(estimator, rewards, rows, starts, old, sampler_logp=given, n_rows=1), logp


def all_right_factor(estimator: Estimator, length: int) -> float:
    """Return W of a response that is right where all of its tokens are, drawn by the sampler."""
    tokens, chance = token_sequences(length)
    batch, logp = drawn_responses(estimator, tokens, tokens.prod(axis=1))
    weight = objective_and_weights(estimator, batch, logp).weight.reshape(tokens.shape)
    return float(chance @ (weight * (tokens - TARGET)).sum(axis=1) / (length * TARGET**length * (1 - TARGET)))


@theory_check("T33")
def importance_weights(mutant: int) -> Claims:
    """Yield the claims of T33. All tokens share a logit, so a token's score is x - π and grad P(all right) = L π^L
    (1-π)."""
    plain, cut = RAW, 1.5

    def weighted(level: CorrectionLevel, high: float = 1e6) -> Estimator:
        level = "token" if mutant == 1 else "sequence" if mutant == 2 else level
        return replace(plain, correction=Correction("truncate", level, high=1e6 if mutant == 2 else high))

    ratio: RatioLevel = "product" if mutant == 2 else "sequence"
    gspo = replace(plain, surrogate=Clip(1.0, float("inf")), ratio=Ratio(ratio))
    for length in (3, 5):
        off = (SAMPLER / TARGET) ** length
        cases = {
            "no weights": (off, weighted("sequence") if mutant == 2 else plain),
            "sequence weights": (1.0, weighted("sequence")),
            "token weights": (off * TARGET / SAMPLER, weighted("token")),
            "GSPO's ratio": (off * TARGET / SAMPLER, gspo),
            "sequence weights cut at 1.5": (min(1.0, cut * off), weighted("sequence", cut)),
        }
        for name, (expected, estimator) in cases.items():
            yield exact(f"W, {name}, L={length}", expected, all_right_factor(estimator, length))
        chi = (TARGET - SAMPLER) ** 2 / (SAMPLER * (1 - SAMPLER))
        mean = SAMPLER * (TARGET / SAMPLER) ** (1 / length)
        mean += (1 - SAMPLER) * ((1 - TARGET) / (1 - SAMPLER)) ** (1 / length)
        yield exact(
            f"E[w²], sequence weights, L={length}", (1 + chi) ** length, weight_moment(weighted("sequence"), length)
        )
        yield exact(
            f"E[w], geometric weights, L={length}", mean**length, weight_moment(weighted("geometric"), length, 1)
        )
        yield positive(
            f"c − E[w²], sequence weights cut at c = 1.1, L={length}",
            1.1 - weight_moment(weighted("sequence", 1.1), length),
        )


def weight_moment(estimator: Estimator, length: int, power: int = 2) -> float:
    """Return E[w^power] of the first token's weight under the sampler."""
    tokens, chance = token_sequences(length)
    batch, _ = drawn_responses(estimator, tokens, np.ones(chance.size))
    return float(chance @ batch.share.reshape(tokens.shape)[:, 0] ** power)


FREQUENT, RARE = (
    softmax_policy([2.0, 0.0, 0.2, -0.1], [1, 0, 0, 0]),
    softmax_policy([-2.0, 0.0, 0.2, -0.1], [1, 0, 0, 0]),
)
"""Policies of T34, whose right arm has a chance of .70 and of .04."""


def entropy_slope(probs: np.ndarray, step: np.ndarray) -> float:
    """Return the derivative of the entropy along a step of the logits, by complex step."""
    odds = probs * np.exp(1e-30j * step)
    moved = odds / odds.sum()
    return float(-(moved * np.log(moved)).sum().imag / 1e-30)


def policy_covariance(probs: np.ndarray, first: np.ndarray, second: np.ndarray) -> float:
    """Return the covariance of two functions of an arm under the policy."""
    return float(probs @ (first * second) - (probs @ first) * (probs @ second))


def masked_mean(low: float, high: float) -> np.ndarray:
    """Return the mean gradient (d,) of RLOO on four responses if Clip-Cov drops one with a covariance in these
    bounds."""
    policy, size = FREQUENT, 4
    estimator = replace(RLOO, mask=ClipCov(1 / size, low, high))
    total = np.zeros(policy.probs.size)
    for arms in all_groups(4, size):
        logp = np.log(policy.probs[arms])
        batch = prepare(estimator, policy.correct[arms], np.zeros(size), np.arange(size + 1), logp)
        weight = objective_and_weights(estimator, apply_mask(estimator, batch, logp, np.arange(4.0)), logp).weight
        total += policy.probs[arms].prod() * (weight @ policy.scores[arms])
    return total


@theory_check("T34")
def entropy_change(mutant: int) -> Claims:
    """Yield the claims of T34. dH = -sum (log π + H) dπ, and dπ_a = π_a (dz_a - E[dz]): minus the covariance of log π
    and dz. The policy gradient has dz = W π (r - p), the natural one W (r - p)."""
    for name, policy in (("frequent", FREQUENT), ("rare", RARE)):
        probs, p = policy.probs, policy.pass_rate
        log = probs if mutant == 1 else np.log(probs)
        for kind, advantage, factor in (
            ("raw", RAW, 1.0),
            ("RLOO", RLOO, 1.0),
            ("GRPO", zscore(1), float(zscore_factor(4, p))),
        ):
            expected = -factor * policy_covariance(probs, log, probs * (policy.correct - p))
            measured = entropy_slope(probs, gradient_moments(policy, advantage, 4)[0])
            yield exact(f"dH, {kind}, K=4, {name} right arm", expected, measured)
        natural = gradient_moments(policy, RLOO, 4)[0] / probs
        expected = -policy_covariance(probs, log, policy.correct)
        yield exact(f"dH, natural gradient, {name} right arm", expected, entropy_slope(probs, natural))
    falls = [entropy_slope(policy.probs, policy.gradient) for policy in (FREQUENT, RARE)]
    fall, growth = falls[::-1] if mutant == 2 else falls
    yield positive("a frequent right arm: fall of the entropy", -fall)
    yield positive("a rare right arm: growth of the entropy", growth)
    bounds = (-10.0, 0.0) if mutant == 3 else (0.0, 10.0)
    kept = entropy_slope(FREQUENT.probs, masked_mean(*bounds) / FREQUENT.probs)
    whole = entropy_slope(FREQUENT.probs, gradient_moments(FREQUENT, RLOO, 4)[0] / FREQUENT.probs)
    yield positive("what Clip-Cov takes off the fall, natural gradient", kept - whole)
    rate, n = 1e-3, 120_000
    logits = np.tile(np.log(FREQUENT.probs), (n, 1))
    learners = Learners(logits, np.tile(FREQUENT.correct > 0, (n, 1)), RLOO, 8, rate=rate)
    learners.advance(1)
    odds = np.exp(learners.logits())
    after = odds / odds.sum(axis=1, keepdims=True)
    change = (-(after * np.log(after)).sum(axis=1) + FREQUENT.probs @ np.log(FREQUENT.probs)) / rate
    log = FREQUENT.probs if mutant == 1 else np.log(FREQUENT.probs)
    expected = -policy_covariance(FREQUENT.probs, log, FREQUENT.probs * (FREQUENT.correct - FREQUENT.pass_rate))
    yield sampled("dH, RLOO, K=8, simulated", expected, change, slack=0.01)


MIXED = PassRates(np.array([0.05, 0.5]), np.array([0.5, 0.5]))
"""Pass rates of T35: half of the contexts are hard, half are even."""


def resampled_moves(size: int, rounds: int, n: int = 400, batch_size: int = 40) -> np.ndarray:
    """Return the mean gradient (seeds, 2) of hard and of even contexts a round, per context of the batch, in simulated
    runs with dynamic sampling, the group mean and a learning rate so low that nothing is learnt."""
    rate, moves = 1e-6, []
    world = tabular_world(*two_arms(MIXED.values, n // 2))
    sampling = Sampling(tries=12)
    design = Design(batch_size, size, estimator=MEAN, sampling=sampling, rounds=rounds, eval_every=rounds)
    for seed in range(16):
        run = Simulation(Tabular(n_contexts=n), design, Optimizer("sgd", learning_rate=rate), seed=seed)
        learner = GeneralLearner(run, world)
        learner.train(0, rounds, no_totals(), lambda: False)
        moved = np.asarray(learner.state.theta[:-1], dtype=np.float64).reshape(2, -1, 2)
        moves.append((moved[:, :, 0] - moved[:, :, 1]).sum(axis=1) / 2 / (rate * rounds))
    return np.array(moves)


@theory_check("T35")
def dynamic_sampling(mutant: int) -> Claims:
    """Yield the claims of T35. A zero-variance group's gradient is 0, so E[g | signal] = E[g]/P(signal): one factor for
    all contexts together."""
    size, (rates, shares) = 4, MIXED
    own = rates**size + (1 - rates) ** size  # chance that all of a context's responses are equal
    silent, successes = float(shares @ own), np.arange(size + 1)
    signal = (successes > 0) & (successes < size)
    told = shares[:, None] * binomial(size, rates) * signal
    told /= told.sum()
    for name, advantage in (("group mean", MEAN), ("GRPO", zscore(1))):
        plain, second, _ = logit_moments(by_count(advantage, size), rates)
        counted = by_count(RAW if mutant == 1 else advantage, size)
        gradient = counted.right - rates[:, None] * counted.total
        parts = (told * gradient).sum(axis=1)
        for p, share, whole, part in zip(rates, shares, plain, parts, strict=True):
            expected = share * whole / (1 - silent)
            yield exact(f"{name}: part of contexts of p={p} in E[g | signal]", float(expected), float(part))
        ratio = (1 - silent) * float(shares @ second) / float(shares @ plain) ** 2
        measured = float((told * gradient**2).sum() / parts.sum() ** 2)
        yield exact(f"{name}: E[g²]/E[g]² of groups with a signal", ratio, measured)
    moves = resampled_moves(size, 150)
    for i, name in enumerate(("hard", "even")):
        left = 1 - (own[i] if mutant == 2 else silent)
        expected = shares[i] * rates[i] * (1 - rates[i]) * (size - 1) / size / left
        yield sampled(f"simulated: move of {name} contexts, p={rates[i]}", float(expected), moves[:, i], 0.01)
