"""Check the effective batch (D31 to D37), and the split of N = B K rollouts (T13 to T15 and D1). The formulas of
shared/effective_batch.py are measured by enumerating groups, on the optimizer, and in simulated runs. In splits
one-logit contexts have unit features that share a part rho of their squared norm."""

from itertools import combinations, product
from math import sqrt

import numpy as np

from rftlab.shared.design import Design
from rftlab.shared.effective_batch import Costs, NoiseRatios, baseline_noise, best_rollouts, best_split, effective_batch
from rftlab.shared.estimator import Estimator
from rftlab.sim.config import Linear, Optimizer, OptimizerKind, Simulation
from rftlab.sim.environments import build
from rftlab.sim.run import batches, simulate
from rftlab.sim.world import World
from rftlab.studies.theory.check import Claims, estimated, exact, positive, sampled, theory_check
from rftlab.studies.theory.models import (
    MEAN,
    RAW,
    RLOO,
    PassRates,
    all_groups,
    beta_rates,
    binomial,
    by_count,
    logit_moments,
    steady_drift,
    weights,
)
from rftlab.studies.theory.replay import replayed


def total_variance(
    advantage: Estimator, size: int, rates: PassRates, rho: float, nuisance: float, between: bool = True
) -> float:
    """Return N V with i.i.d. contexts: K times E|g|^2 - |E g|^2 of a context's gradient g, where `nuisance` is the
    squared norm of its style score. Without `between`, the noise between contexts is left out."""
    mean, second, style = logit_moments(by_count(advantage, size), rates.values)
    common = rho * (rates.chances @ mean) ** 2 if between else rates.chances @ mean**2
    return size * float(rates.chances @ (second + nuisance * style) - common)


def budget_terms(rates: PassRates, rho: float, nuisance: float) -> tuple[float, float, float, float]:
    """Return slope, level, bend and single: N V = slope K + level + bend/(K-1) with RLOO, K >= 2, and `single` with the
    raw reward, K = 1."""
    u = rates.mean(lambda p, q: p * q)
    square = rates.mean(lambda p, q: (p * q) ** 2)
    slope, noise = square - rho * u**2, nuisance * u
    single = slope + rates.mean(lambda p, q: p * q**3) + nuisance * rates.mean(lambda p, q: p)
    return slope, u - 4 * square + noise, 2 * square + noise, single


def predicted(size: int, terms: tuple[float, float, float, float]) -> float:
    """Return N V at K = size from the terms of `budget_terms`."""
    slope, level, bend, single = terms
    return slope * size + level + bend / (size - 1) if size > 1 else single


def best_size(measured: dict[int, float]) -> float:
    """Return K* from three measured values: the minimum of slope K + level + bend/(K-1)."""
    sizes = (2, 4, 8)
    slope, _, bend = np.linalg.solve([[k, 1, 1 / (k - 1)] for k in sizes], [measured[k] for k in sizes])
    return 1 + float(np.sqrt(bend / slope)) if bend * slope > 0 else float("nan")


SIZES = (1, 2, 4, 8, 16)


def split_claims(mutant: int, cases: dict[str, tuple[PassRates, float, float]], drawn: tuple[int, ...]) -> Claims:
    """Yield the claims of T13 and T14: every case (pass rates, rho, nuisance) exactly, and the last one also in drawn
    batches of N = 48 at the K of `drawn`."""
    advantage, between = MEAN if mutant == 1 else RLOO, mutant != 2
    for name, case in cases.items():
        terms = budget_terms(*case)
        measured = {size: total_variance(advantage, size, *case, between) for size in SIZES}
        for size, value in measured.items():
            yield exact(f"N V, {name}, K={size}", predicted(size, terms), value)
        yield exact(f"K*, {name}", 1 + np.sqrt(terms[2] / terms[0]), best_size(measured))
    rates, _, style = case
    for size in drawn:
        yield sampled(
            f"N V in batches of 48, {name}, K={size}",
            predicted(size, terms),
            drawn_deviations(advantage, size, rates, style, between=between),
        )


def drawn_deviations(
    advantage: Estimator, size: int, rates: PassRates, nuisance: float, n: int = 28_000, between: bool = True
) -> np.ndarray:
    """Return N |g - E g|^2 of n batches of N = 48 rollouts on i.i.d. contexts with one feature: the parts along the
    logit and along the style. Without `between`, E g is that of the drawn contexts."""
    rng, budget = np.random.default_rng(size), 48
    p = rng.choice(rates.values, p=rates.chances, size=(n * budget // size, 1))
    rewards = (rng.random((p.size, size)) < p).astype(np.float64)
    weight = weights(advantage, rewards)
    along = (weight * (rewards - p)).sum(axis=1).reshape(n, -1).mean(axis=1)
    style = np.sqrt(nuisance * (weight**2).sum(axis=1)) * rng.standard_normal(p.size) if nuisance else np.zeros(p.size)
    expected = rates.mean(lambda p, q: p * q) if between else (p * (1 - p)).reshape(n, -1).mean(axis=1)
    return budget * ((along - expected) ** 2 + style.reshape(n, -1).mean(axis=1) ** 2)


@theory_check("T13")
def budget(mutant: int) -> Claims:
    """Yield the claims of T13, for three distributions of pass rates."""
    some, uniform = beta_rates(8, 24), beta_rates(1, 1)
    yield from split_claims(
        mutant,
        {
            "Beta(8, 24), ρ=1": (some, 1.0, 0.0),
            "uniform, ρ=0": (uniform, 0.0, 0.0),
            "uniform, ρ=1": (uniform, 1.0, 0.0),
        },
        (1, 4),
    )


@theory_check("T14")
def nuisance(mutant: int) -> Claims:
    """Yield the claims of T14, with the best and worst K for Beta(1, 3) and for the histograms of D1 by enumeration."""
    rates, advantage, between = beta_rates(1, 3), MEAN if mutant == 1 else RLOO, mutant != 2
    yield from split_claims(
        mutant, {"Beta(1, 3), ρ=1, ν²=4": (rates, 1.0, 4.0), "Beta(1, 3), ρ=1, ν²=1": (rates, 1.0, 1.0)}, (2, 8)
    )
    for name, levels in EXTREMES.items():
        rates = HISTOGRAMS.get(name, rates)
        for style, (best, worst) in levels.items():
            level = 0.0 if mutant == 3 else style
            measured = {k: total_variance(advantage, k, rates, 1.0, level, between) for k in range(1, 65)}
            yield exact(f"best K, {name}, ν²={style:g}", best, min(measured, key=measured.__getitem__))
            yield exact(f"worst K of five, {name}, ν²={style:g}", worst, max(SIZES, key=measured.__getitem__))


EXTREMES = {
    "Beta(1, 3)": {1.0: (7, 2), 4.0: (11, 2)},
    "weak base": {1.0: (1, 16), 4.0: (8, 2)},
    "bimodal": {1.0: (4, 1), 4.0: (7, 1)},
    "medium": {1.0: (8, 1), 4.0: (14, 1)},
    "strong": {1.0: (5, 1), 4.0: (8, 1)},
}
"""Best K of 1 to 64 and worst K of 1, 2, 4, 8, 16 for T14, by distribution of pass rates and by nuisance."""


POPULATION = np.array([0.02, 0.1, 0.3, 0.5, 0.8, 0.95, 0.6])


@theory_check("T15")
def without_replacement(mutant: int) -> Claims:
    """Yield the claims of T15, from all batches of seven contexts, and the order in which the simulator visits them.
    The mutant draws contexts with replacement."""
    n = POPULATION.size
    mean, second, _ = logit_moments(by_count(RLOO, 4), POPULATION)
    within, between = second - mean**2, mean.var()
    for size in (2, 3, 6):
        chosen = np.array(list(product(range(n), repeat=size) if mutant else combinations(range(n), size)))
        measured = mean[chosen].mean(axis=1).var() + within[chosen].sum(axis=1).mean() / size**2
        yield exact(
            f"V, B={size} of {n}", between / size * (n - size) / (n - 1) + within.mean() / size, float(measured)
        )
    size, rounds = 4, 20_000
    visited = np.random.default_rng(0).integers(0, n, (rounds, size)) if mutant else batches(n, size, 0, 0, rounds)
    deviations = (mean[visited].mean(axis=1) - mean.mean()) ** 2
    yield sampled(
        f"between-context part in the simulator's order, B={size} of {n}",
        between / size * (n - size) / (n - 1),
        deviations,
    )


def integer_best(terms: tuple[float, float, float, float]) -> int:
    """Return the K >= 2 with the least variance of RLOO at a fixed budget: the first with K(K-1) >= bend/slope."""
    return max(2, int(np.ceil(0.5 + np.sqrt(0.25 + terms[2] / terms[0]) - 1e-9)))


HISTOGRAMS = {
    "weak base": PassRates(np.array([0.0, 0.05, 0.2, 0.5]), np.array([0.5, 0.3, 0.15, 0.05])),
    "bimodal": PassRates(np.array([0.0, 0.1, 0.5, 0.9, 1.0]), np.array([0.45, 0.1, 0.1, 0.1, 0.25])),
    "medium": PassRates(np.array([0.1, 0.3, 0.5, 0.7, 0.9]), np.full(5, 0.2)),
    "strong": PassRates(np.array([0.5, 0.8, 0.95, 1.0]), np.array([0.1, 0.2, 0.3, 0.4])),
}


@theory_check("D1")
def best_group_size(mutant: int) -> Claims:
    """Yield the claims of D1: every K from 1 to 64 by enumeration, four histograms of pass rates, three nuisances."""
    sizes = range(2, 65)
    for name, rates in HISTOGRAMS.items():
        for style in (0.0, 1.0, 4.0):
            terms, case = budget_terms(rates, 1.0, style), f"{name}, ν²={style:g}"
            between, advantage = mutant != 2, MEAN if mutant == 1 else RLOO
            measured = [total_variance(advantage, size, rates, 1.0, style, between) for size in sizes]
            yield exact(f"best K ≥ 2, {case}", integer_best(terms), sizes[int(np.argmin(measured))])
            lead = (
                style * rates.mean(lambda p, q: p * p)
                + rates.mean(lambda p, q: p * p * q * (2 - 3 * p))
                - 2 * np.sqrt(terms[0] * terms[2])
            )
            single = total_variance(RLOO, 1, rates, 1.0, style, between)
            gap = single - (2 * np.sqrt(terms[0] * terms[2]) + terms[0] + terms[1])
            yield exact(f"N V of raw K=1 less that of RLOO at K*, {case}", lead, gap, 1e-9)


RATES = PassRates(np.array([0.1, 0.4, 0.8]), np.array([0.5, 0.3, 0.2]))


def outcomes(size: int) -> tuple[np.ndarray, np.ndarray]:
    """Return chances (n,) and gradients (n,) of all outcomes of a prompt drawn from RATES with K responses, in the
    one-logit model."""
    rewards = all_groups(2, size).astype(np.float64)
    weight = weights(RAW, rewards)
    chances = [c * np.where(rewards == 1, p, 1 - p).prod(axis=1) for p, c in zip(*RATES, strict=True)]
    gradients = [(weight * (rewards - p)).sum(axis=1) for p in RATES.values]
    return np.concatenate(chances), np.concatenate(gradients)


def enumerated_noise(batch_size: int, size: int) -> float:
    """Return the variance of the gradient of B drawn prompts with K responses each, by enumeration of all outcomes."""
    chance, gradient = outcomes(size)
    mean = second = 0.0
    for picked in product(range(chance.size), repeat=batch_size):
        likely, batch = chance[list(picked)].prod(), gradient[list(picked)].mean()
        mean, second = mean + likely * batch, second + likely * batch**2
    return float(second - mean**2)


@theory_check("D31")
def noise_of_a_round(mutant: int) -> Claims:
    """Yield the claims of D31: r and the noise within from K = 1 and 2, else enumeration. The mutant counts
    responses."""
    one, two = enumerated_noise(1, 1), enumerated_noise(1, 2)
    within, between = 2 * (one - two), 2 * two - one
    ratio = 0.0 if mutant else between / within
    cases = ((1, 3), (1, 8), (2, 1), (2, 2), (2, 3), (3, 1), (3, 2))
    for b, k in cases:
        yield exact(f"variance, B={b}, K={k}", within / effective_batch(b, k, ratio), enumerated_noise(b, k))


def set_noise(rates: PassRates, trained: int, others: int, replay: bool = False) -> float:
    """Return K times the noise over the squared signal that a unit of reward-blind score adds to a group of K
    responses. The baseline is the mean of all K + others rewards; with `replay` that of the last visits of a window."""
    rewards = all_groups(2, trained + others).astype(np.float64)
    sets = replayed(rewards[:, ::-1]).rewards.reshape(rewards.shape) if replay else rewards
    weight = weights(MEAN, rewards[:, :trained].copy(), sets)
    noise = signal = 0.0
    for p, share in zip(*rates, strict=True):
        chance = share * np.where(rewards == 1, p, 1 - p).prod(axis=1)
        noise += chance @ (weight**2).sum(axis=1)
        signal += chance @ (weight * (rewards[:, :trained] - p)).sum(axis=1)
    return trained * noise / (signal / rates.mean(lambda p, q: p * q)) ** 2


@theory_check("D32")
def price_of_a_baseline(mutant: int) -> Claims:
    """Yield the claims of D32. The mutant leaves out the noise that the baseline adds."""
    gain = RATES.mean(lambda p, q: p * q) / RATES.mean(lambda p, q: p)
    for name, trained, others, replay in (
        ("K=2", 2, 0, False),
        ("K=8", 8, 0, False),
        ("K=1 and 7 support rollouts", 1, 7, False),
        ("K=4 and 4 support rollouts", 4, 4, False),
        ("K=1, window of 8", 1, 7, True),
        ("K=2, window of 6", 2, 4, True),
    ):
        expected = gain if mutant else baseline_noise(trained + others, gain)
        measured = set_noise(RATES, trained, others, replay) / RATES.mean(lambda p, q: p)
        yield exact(f"f, {name}", expected, measured)
    for size in (2, 4, 16):
        square = RATES.chances @ (binomial(size, RATES.values) @ by_count(RLOO, size).squares)
        expected = gain if mutant else baseline_noise(size, gain)
        yield exact(f"f, leave-one-out, K={size}", expected, size * square / RATES.mean(lambda p, q: p))


def searched(rates: PassRates, style: float, costs: Costs, baseline: bool) -> tuple[int, float]:
    """Return the K with the least noise at equal cost, found by trying all, and that noise. The noise between prompts
    comes from their pass rates, that within them is `style` times the squared weights of the estimator."""
    few = (2 if baseline else 1) + np.arange(40)
    sizes = few.tolist()
    advantage = RLOO if baseline else RAW
    between = rates.mean(lambda p, q: (p * q) ** 2) - rates.mean(lambda p, q: p * q) ** 2
    squares = np.array([rates.chances @ (binomial(k, rates.values) @ by_count(advantage, k).squares) for k in sizes])
    noise = (between + style * squares) * (costs.prompt + few * costs.rollout)
    return int(few[noise.argmin()]), float(noise.min())


@theory_check("D33")
def spending(mutant: int) -> Claims:
    """Yield the claims of D33. Mutant 1 has 1/r in place of r, mutant 2 the formula for the other baseline."""
    rates = beta_rates(1, 3)
    between = rates.mean(lambda p, q: (p * q) ** 2) - rates.mean(lambda p, q: p * q) ** 2
    for style in (0.5, 2.0):
        raw, centred = style * rates.mean(lambda p, q: p), style * rates.mean(lambda p, q: p * q)
        noise = NoiseRatios(raw / between if mutant == 1 else between / raw, centred / raw)
        for dear in (0.0, 4.0, 12.0):
            for baseline in (False, True):
                costs = Costs(dear, 1.0)
                used, budget = baseline != (mutant == 2), 1e9
                ideal, split = best_rollouts(noise, costs, used), best_split(noise, costs, budget, used)
                best, least = searched(rates, style, costs, baseline)
                case = f"{'leave-one-out' if baseline else 'raw'}, prompt = {dear:g} rollouts, ν²={style:g}"
                yield exact(f"K, {case}", split.rollouts, best)
                yield exact(f"noise for the money, {case}", raw / split.effective * budget, least, 1e-6)
                yield exact(f"K* rounds to K, {case}", 1.0, float(abs(ideal - best) < 1))


def drift(
    kind: OptimizerKind, ratio: float, batch: float, parts: int = 1, epochs: int = 1, rounds: int = 1100
) -> np.ndarray:
    """Return how far a round moves 1000 parameters along their gradient, in learning rates. ratio: signal over noise of
    one response. A round is `epochs` passes over `parts` mini-batches of batch / parts."""
    rng, noise = np.random.default_rng(0), sqrt(parts / batch)
    gradients = ([*(ratio + rng.standard_normal((parts, 1000)) * noise)] * epochs for _ in range(rounds))
    return steady_drift(kind, gradients, np.zeros(1000), np.full(1000, ratio**2 + parts / batch), 100, rounds)


def drift_per_round(ratio: float, batch: float, parts: int = 1, epochs: int = 1) -> float:
    """Return the drift per round by its formula."""
    return epochs * parts * ratio / sqrt(ratio**2 + parts / batch)


@theory_check("D34")
def drift_in_noise(mutant: int) -> Claims:
    """Yield the claims of D34. Signal over noise of a response is .01 or 1; the mutant is SGD."""
    kind: OptimizerKind = "sgd" if mutant else "adam"
    for ratio, batch in ((0.01, 256), (0.01, 1024), (1.0, 16)):
        name = f"drift, |G|/noise = {ratio:g}, B_eff = {batch}"
        yield sampled(name, drift_per_round(ratio, batch), drift(kind, ratio, batch), slack=0.02)
    low, high = (drift(kind, 0.01, batch).mean() for batch in (256, 1024))
    yield exact("twice as far with four times B_eff", 2.0, high / low, 0.05)


@theory_check("D35")
def drift_over_updates(mutant: int) -> Claims:
    """Yield the claims of D35. The mutant counts rounds in place of updates."""
    for parts, epochs in ((4, 1), (1, 4), (4, 2)):
        expected = drift_per_round(0.01, 1024) if mutant else drift_per_round(0.01, 1024, parts, epochs)
        measured = drift("adam", 0.01, 1024, parts, epochs, rounds=600)
        yield sampled(f"drift a round, {parts} mini-batches, {epochs} epochs", expected, measured, slack=0.02)


WORLD = Linear(
    n_train=2048,
    n_test=200,
    n_features=64,
    n_answers=4,
    n_styles=2,
    kappa=2.0,
    align=0.5,
    base_format=8.0,
    nuisance=2.0,
)
"""Small environment that is noisy enough for batches of 16 to 256 to be far from the limit without noise."""


def final_pass_at_1(world: World, batch_size: int, rounds: int, rate: float, seeds: int = 16) -> np.ndarray:
    """Return test Pass@1 (seeds,) after training with single rollouts and the raw reward."""
    design = Design(batch_size, 1, estimator=RAW, rounds=rounds, eval_every=rounds)
    runs = (Simulation(WORLD, design, Optimizer(learning_rate=rate), seed=seed) for seed in range(seeds))
    return np.array([simulate(run, world).curve.test_pass_at_1[-1] for run in runs])


def difference(first: np.ndarray, second: np.ndarray) -> tuple[float, float]:
    """Return the difference of the means of independent runs (n,), and its standard error."""
    error = sqrt((first.var(ddof=1) + second.var(ddof=1)) / first.size)
    return float(first.mean() - second.mean()), error


@theory_check("D36")
def equal_tau(mutant: int) -> Claims:
    """Yield the claims of D36. The mutant compares at equal rollouts, and keeps short steps throughout."""
    world = build(WORLD)
    large = final_pass_at_1(world, 256, 200, 0.005)
    for batch_size in (64, 16):
        rounds = 200 * 256 // batch_size if mutant else round(200 * sqrt(256 / batch_size))
        small = final_pass_at_1(world, batch_size, rounds, 0.005)
        name = f"Pass@1 of B = {batch_size} against B = 256 at equal τ"
        yield estimated(name, float(large.mean()), float(small.mean()), difference(large, small)[1], slack=0.01)
    far, near = (
        (large, small) if mutant else (final_pass_at_1(world, 256, 200, 0.02), final_pass_at_1(world, 16, 800, 0.02))
    )
    yield positive("steps four times as long: B = 256 less B = 16", *difference(far, near))


@theory_check("D37")
def equal_distance(mutant: int) -> Claims:
    """Yield the claims of D37. The mutant compares at equal rounds, and has no steps that are too long."""
    world = build(WORLD)
    middle = final_pass_at_1(world, 64, 400, 0.005)
    for times in (0.5, 2.0):
        other = final_pass_at_1(world, 64, 400 if mutant else round(400 / times), 0.005 * times)
        name = f"Pass@1 at {times:g} of the learning rate, at equal rate x rounds"
        yield estimated(name, float(middle.mean()), float(other.mean()), difference(middle, other)[1], slack=0.01)
    far = other if mutant else final_pass_at_1(world, 64, 50, 0.04)
    yield positive("what steps eight times as long lose", *difference(middle, far))
