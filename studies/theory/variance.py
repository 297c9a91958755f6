"""Check variance (T10 to T12): which baseline gives the least noisy gradient; and the statistics of evaluation (S1 to
S4): errors of sampled Pass@1 and pass@k, the number of seeds, and the best of several cells."""

from collections.abc import Callable

import numpy as np
from scipy import stats
from scipy.optimize import brentq
from scipy.stats import binom

from rftlab.shared.evalstats import fixed_set_error, pass_at_k, sampling_error
from rftlab.sim.round.measures import pass_at_1
from rftlab.sim.world import Contexts
from rftlab.studies.data.results.stats import expected_maximum, power, seeds_needed, winners_curse
from rftlab.studies.theory.check import Claims, MeasuredValue, estimated, exact, positive, sampled, theory_check
from rftlab.studies.theory.models import (
    MEAN,
    RAW,
    RLOO,
    ExactPolicy,
    Learners,
    by_count,
    constant,
    gradient_moments,
    logit_moments,
    one_correct,
    one_logit,
    softmax_policy,
    two_arms,
)


def baseline_variance(policy: ExactPolicy, baseline: float) -> float:
    """Return the total variance of one response's gradient with a constant baseline."""
    return gradient_moments(policy, MEAN, 1, constant(baseline))[1]


def best_baseline(policy: ExactPolicy) -> float:
    """Return the baseline of least variance: the vertex of the parabola through three measured variances."""
    none, half, one = (baseline_variance(policy, b) for b in (0.0, 0.5, 1.0))
    bend = 2 * (none - 2 * half + one)
    return 0.5 - (one - none) / (2 * bend)


@theory_check("T10")
def least_variance_baseline(mutant: int) -> Claims:
    """Yield the claims of T10. The mutant divides by E[r], as a survey prints it."""
    policy = softmax_policy([0.3, -0.2, 0.9, 0.1], [1, 0, 0, 1])
    norm = (policy.scores**2).sum(axis=1)
    size, weighted = float(policy.probs @ norm), float((policy.probs * policy.correct) @ norm)
    best = weighted / (policy.pass_rate if mutant else size)
    yield exact("b* of a four-arm softmax", best, best_baseline(policy))
    for b in (-0.5, 0.9):
        yield exact(
            f"V({b}) - V(b*)", (b - best) ** 2 * size, baseline_variance(policy, b) - baseline_variance(policy, best)
        )
    for arms, p in ((2, 0.1), (2, 0.7), (3, 0.3), (10, 0.2)):
        closed = (1 - p) ** 2 * arms / (arms - 1) if mutant else arms * p * (1 - p) / (arms - 2 + arms * p)
        yield exact(f"b*, one correct arm of {arms}, p={p}", closed, best_baseline(one_correct(arms, p)))


@theory_check("T11")
def value_baseline(mutant: int) -> Claims:
    """Yield the claims of T11. The greedy response is right at p = .7, so ReMax's baseline is 1."""
    base = (lambda p: 1 - p) if mutant == 1 else (lambda p: p)
    for arms in (2, 3, 5, 10):

        def harm(p: float, arms: int = arms) -> float:
            return baseline_variance(one_correct(arms, p), base(p)) - baseline_variance(one_correct(arms, p), 0.0)

        limit = crossing(harm)
        yield exact(f"pass rate above which the value baseline hurts, A={arms}", (arms + 2) / (3 * arms), limit)
    for p in (0.3, 0.7):
        q, policy, remax = 1 - p, one_logit(p), p > 0.5
        squared = float(policy.gradient @ policy.gradient) if mutant == 3 else 0.0
        for name, expected, baseline in (
            ("without baseline", p * q**3, 0.0),
            ("of the value baseline", p * q * (1 - 2 * p) ** 2, base(p)),
            ("of ReMax", p**3 * q if remax else p * q**3, float(remax != (mutant == 2))),
            ("of baseline 1-p", 0.0, q),
        ):
            yield exact(f"V {name}, p={p}", expected, baseline_variance(policy, baseline) + squared)


def crossing(difference: Callable[[float], float]) -> float:
    """Return the pass rate from .02 to .98 at which a difference changes its sign; nan where it does not."""
    ends = 0.02, 0.98
    changes = difference(ends[0]) * difference(ends[1]) < 0
    return brentq(difference, *ends, xtol=1e-14, rtol=1e-14) if changes else float("nan")


@theory_check("T12")
def leave_one_out(mutant: int) -> Claims:
    """Yield the claims of T12, by enumeration and in the one-logit model."""
    advantage = MEAN if mutant else RLOO
    for policy in (softmax_policy([0.3, -0.2, 0.9, 0.1], [1, 0, 0, 1]), softmax_policy([1.2, 0.4, -0.7], [0, 0, 1])):
        p, single = policy.pass_rate, baseline_variance(policy, policy.pass_rate)
        rest = p * (1 - p) - float(policy.gradient @ policy.gradient)
        for size in range(2, 6):
            expected = ((size - 2) * single + 2 * rest) / (size * (size - 1))
            name = f"V, {p:.3f} right of {policy.probs.size} arms, K={size}"
            yield exact(name, expected, gradient_moments(policy, advantage, size)[1])
    for size in (3, 4, 8, 64):
        rloo, raw = by_count(advantage, size), by_count(RAW, size)

        def loss(p: float, rloo=rloo, raw=raw) -> float:
            return group_variance(rloo, p) - group_variance(raw, p)

        limit = crossing(loss)
        yield exact(
            f"one logit: pass rate above which RLOO loses to raw, K={size}", (2 * size - 4) / (3 * size - 5), limit
        )


def group_variance(counted, p: float) -> float:
    """Return the variance of a group's gradient in the one-logit model."""
    mean, second, _ = logit_moments(counted, p)
    return float(second - mean**2)


def evaluations(rates: np.ndarray, n: int, first: int = 0) -> np.ndarray:
    """Return sampled Pass@1 (n,) of the simulator on one fixed set of questions with these pass rates, each with new
    responses."""
    learners = Learners(*two_arms(rates), RAW, 1, rate=0.0)
    contexts, theta = learners.world.train, learners.state.theta
    return np.array([pass_at_1(contexts, learners.plan, theta, learners.work, first + i, True)[0] for i in range(n)])


def new_questions(rates: np.ndarray, n: int) -> np.ndarray:
    """Return sampled Pass@1 on new questions each time: rates (sets * n,) of questions in consecutive sets of n."""
    learners = Learners(*two_arms(rates), RAW, 1, rate=0.0)
    base, theta = learners.world.train, np.zeros(2 * n + 1)
    sets = (Contexts(base.features, *(column[i : i + n] for column in base[1:])) for i in range(0, rates.size, n))
    return np.array([pass_at_1(part, learners.plan, theta, learners.work, i, True)[0] for i, part in enumerate(sets)])


def spread_claim(name: str, expected: float, values: np.ndarray) -> MeasuredValue:
    """Compare the standard deviation of values with its theory; its error counts the kurtosis."""
    deviation = values.std(ddof=1)
    fourth = np.mean((values - values.mean()) ** 4) / deviation**4
    return estimated(name, expected, float(deviation), float(deviation * np.sqrt((fourth - 1) / (4 * values.size))))


@theory_check("S1")
def pass_at_1_error(mutant: int) -> Claims:
    """Yield the claims of S1: the simulator's sampled Pass@1, on new questions each time and on one fixed set; rates
    are Beta(.5, .5), with mean .5."""
    n, sets = 24, 5600
    rng = np.random.default_rng(0)
    rates = rng.beta(0.5, 0.5, n)
    alike = np.full_like(rates, rates.mean())
    exchanged = mutant == 2
    fixed = evaluations(rates, sets)
    other = evaluations(rates, sets, first=sets)
    error = fixed_set_error(alike if mutant == 1 else rates)
    new = np.tile(rates, sets) if exchanged else rng.beta(0.5, 0.5, n * sets)
    yield sampled("mean of sampled Pass@1 is the exact one", 0.5 if exchanged else float(rates.mean()), fixed)
    yield spread_claim("new questions each time", float(sampling_error(0.5, n)), new_questions(new, n))
    yield spread_claim("fixed questions", error, fixed)
    yield spread_claim("difference of two, fixed questions", error * np.sqrt(2), fixed - other)


def plug_in(n: int, correct: np.ndarray, k: int) -> np.ndarray:
    """Return the plug-in estimate 1 - (1 - c/n)^k of pass@k."""
    return 1 - (1 - correct / n) ** k


@theory_check("S2")
def unbiased_pass_at_k(mutant: int) -> Claims:
    """Yield the claims of S2, from expectations over the counts of n responses, and from rewards of the simulator."""
    estimate = plug_in if mutant == 1 else pass_at_k
    for n, k, p in ((8, 4, 0.1), (8, 8, 0.1), (16, 4, 0.5), (64, 16, 0.01)):
        counts = np.arange(n + 1)
        yield exact(
            f"n = {n}, k = {k}, p = {p}", 1 - (1 - p) ** k, float(binom.pmf(counts, n, p) @ estimate(n, counts, k))
        )
    learners = Learners(*two_arms(0.1, 15000), RAW, 8, rate=0.0)
    learners.advance(1)
    yield sampled(
        "n = 8, k = 4, p = 0.1, simulated", 1 - 0.9**4, estimate(8, learners.rewards().sum(axis=1).astype(int), 4)
    )
    counts = np.arange(9)
    biased = plug_in(10, counts + 1, 4) if mutant == 2 else plug_in(8, counts, 4)
    yield positive("bias of the plug-in, downwards", 1 - 0.9**4 - float(binom.pmf(counts, 8, 0.1) @ biased))


def found_by_t_test(seeds: int, effect: float, paired: bool, runs: int = 8000) -> np.ndarray:
    """Return whether (runs,) a two-sided t test at 5% finds a difference of `effect` standard deviations between normal
    samples."""
    rng = np.random.default_rng(seeds)
    first = rng.standard_normal((runs, seeds)) + effect
    if paired:
        return stats.ttest_1samp(first, 0.0, axis=1).pvalue < 0.05
    return stats.ttest_ind(first, rng.standard_normal((runs, seeds)), axis=1).pvalue < 0.05


def normal_seeds(sigma: float, difference: float, paired: bool) -> int:
    """Return the seeds per arm by the normal approximation."""
    z = stats.norm.ppf(0.975) + stats.norm.ppf(0.8)
    return int(np.ceil((1 if paired else 2) * (z * sigma / difference) ** 2))


def normal_power(seeds: int, effect: float, paired: bool) -> float:
    """Return the power of a test by the normal approximation."""
    return float(stats.norm.cdf(effect * np.sqrt(seeds if paired else seeds / 2) - stats.norm.ppf(0.975)))


@theory_check("S3")
def seeds_for_power(mutant: int) -> Claims:
    """Yield the claims of S3: required seeds, and the power of t tests with so many seeds and with one fewer."""
    cases = ((0.01, False, 6), (0.015, False, 10), (0.02, False, 17), (0.025, False, 26), (0.02, True, 10))
    ask, chance = (normal_seeds, normal_power) if mutant == 1 else (seeds_needed, power)
    for sigma, paired, seeds in cases:
        name = f"paired, σ_d = {sigma}" if paired else f"σ = {sigma}"
        yield exact(f"{name}: seeds", seeds, ask(sigma, 0.02, paired))
        for count in (seeds - 1, seeds):
            yield sampled(
                f"{name}: power of {count} seeds",
                chance(count, 0.02 / sigma, paired != (mutant == 2)),
                found_by_t_test(count, 0.02 / sigma, paired),
            )


def winner_values(cells: int, tau: float, mutant: int, runs: int = 9000) -> tuple[np.ndarray, np.ndarray]:
    """Return the measured value (in mutant 1 that of a second measurement) minus the true one, and the true one, of the
    cell that measures best; errors are 1. Mutant 2 takes the first cell."""
    rng = np.random.default_rng(cells)
    truth, first, second = tau * rng.standard_normal((runs, cells)), *rng.standard_normal((2, runs, cells))
    best = (truth + first).argmax(axis=1)[:, None] * (mutant != 2)
    true = np.take_along_axis(truth, best, axis=1)[:, 0]
    return np.take_along_axis(second if mutant == 1 else first, best, axis=1)[:, 0], true


@theory_check("S4")
def best_cell(mutant: int) -> Claims:
    """Yield the claims of S4: the best of several normal cells, equal and unequal ones, and the best of nine equal
    cells by the simulator's sampled Pass@1."""
    for cells in (5, 9, 10, 15):
        yield sampled(f"E[max] of {cells} equal cells", expected_maximum(cells), winner_values(cells, 0.0, mutant)[0])
    excess, true = winner_values(9, 1.0, mutant)
    yield sampled("nine cells that differ by one standard error: excess", winners_curse(9, 1.0, 1.0), excess)
    yield sampled(
        "nine cells that differ by one standard error: true value of the best", expected_maximum(9) / np.sqrt(2), true
    )
    questions, runs = 32, 1700
    measured = evaluations(np.full(questions, 0.5), 9 * runs).reshape(runs, 9)
    best = measured[:, 0] if mutant else measured.max(axis=1)
    yield sampled(
        "nine equal cells, simulated Pass@1",
        winners_curse(9, float(sampling_error(0.5, questions))),
        best - 0.5,
        slack=0.01,
    )
