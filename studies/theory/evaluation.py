"""Statistics of the evaluation: what one sampled Pass@1, a pass@k, a number of seeds and a best cell are worth."""

import numpy as np
from scipy import stats
from scipy.stats import binom

from rftlab.shared.evalstats import fixed_set_error, pass_at_k, sampling_error
from rftlab.sim.round.evaluation import pass_at_1
from rftlab.sim.world import Contexts
from rftlab.studies.data.results.stats import expected_maximum, power, seeds_needed, winners_curse
from rftlab.studies.theory.check import Claims, MeasuredValue, estimated, exact, positive, sampled, theory_check
from rftlab.studies.theory.learners import Learners, two_arms
from rftlab.studies.theory.models import RAW


def evaluations(rates: np.ndarray, n: int, first: int = 0) -> np.ndarray:
    """Sampled Pass@1 (n,) of the simulator on one fixed set of questions with these pass rates, each with new
    responses."""
    learners = Learners(*two_arms(rates), RAW, 1, rate=0.0)
    contexts, theta = learners.world.train, learners.state.theta
    return np.array([pass_at_1(contexts, learners.plan, theta, learners.work, first + i, True)[0] for i in range(n)])


def new_questions(rates: np.ndarray, n: int) -> np.ndarray:
    """As `evaluations`, but each on its own questions: rates (sets * n,) in consecutive sets of n."""
    learners = Learners(*two_arms(rates), RAW, 1, rate=0.0)
    base, theta = learners.world.train, np.zeros(2 * n + 1)
    sets = (Contexts(base.features, *(column[i : i + n] for column in base[1:])) for i in range(0, rates.size, n))
    return np.array([pass_at_1(part, learners.plan, theta, learners.work, i, True)[0] for i, part in enumerate(sets)])


def spread_claim(name: str, expected: float, values: np.ndarray) -> MeasuredValue:
    """Standard deviation of values against its theory, with the error of a standard deviation (kurtosis counted)."""
    deviation = values.std(ddof=1)
    fourth = np.mean((values - values.mean()) ** 4) / deviation**4
    return estimated(name, expected, float(deviation), float(deviation * np.sqrt((fourth - 1) / (4 * values.size))))


@theory_check("S1")
def pass_at_1_error(mutant: int) -> Claims:
    """S1. The simulator's sampled Pass@1, on new questions each time and on one fixed set; rates Beta(.5, .5), so
    mean .5."""
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
    """1 - (1 - c/n)^k."""
    return 1 - (1 - correct / n) ** k


@theory_check("S2")
def unbiased_pass_at_k(mutant: int) -> Claims:
    """S2. Expectation over the counts of n responses, and rewards of the simulator."""
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
    """Whether (runs,) a two-sided t test of 5% finds a difference of `effect` standard deviations between normal
    samples."""
    rng = np.random.default_rng(seeds)
    first = rng.standard_normal((runs, seeds)) + effect
    if paired:
        return stats.ttest_1samp(first, 0.0, axis=1).pvalue < 0.05
    return stats.ttest_ind(first, rng.standard_normal((runs, seeds)), axis=1).pvalue < 0.05


def normal_seeds(sigma: float, difference: float, paired: bool) -> int:
    """Seeds per arm by the normal approximation."""
    z = stats.norm.ppf(0.975) + stats.norm.ppf(0.8)
    return int(np.ceil((1 if paired else 2) * (z * sigma / difference) ** 2))


def normal_power(seeds: int, effect: float, paired: bool) -> float:
    """Power by the normal approximation."""
    return float(stats.norm.cdf(effect * np.sqrt(seeds if paired else seeds / 2) - stats.norm.ppf(0.975)))


@theory_check("S3")
def seeds_for_power(mutant: int) -> Claims:
    """S3. Seeds asked for, and power found by t tests on normal samples with so many seeds and with one fewer."""
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
    """Of the cell that measures best: its measured (in mutant 1: measured anew) value less its true one, and its
    true one; errors are 1. Mutant 2 takes the first cell."""
    rng = np.random.default_rng(cells)
    truth, first, second = tau * rng.standard_normal((runs, cells)), *rng.standard_normal((2, runs, cells))
    best = (truth + first).argmax(axis=1)[:, None] * (mutant != 2)
    true = np.take_along_axis(truth, best, axis=1)[:, 0]
    return np.take_along_axis(second if mutant == 1 else first, best, axis=1)[:, 0], true


@theory_check("S4")
def best_cell(mutant: int) -> Claims:
    """S4. Best of several normal cells, equal and unequal ones, and best of nine equal cells by the simulator's
    sampled Pass@1."""
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
