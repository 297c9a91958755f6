"""Variance, T10 to T15 and D1: which baseline and which split of N = B K rollouts give the least noisy gradient.

One-logit contexts have unit features that share a part rho of their squared norm; V is the total variance of the batch
gradient.
"""

from collections.abc import Callable
from itertools import combinations, product

import numpy as np
from scipy.optimize import brentq

from rftlab.shared.config.advantage import Advantage
from rftlab.sim.run import batches
from rftlab.studies.theory.check import Check, MeasuredValue, Mutant, exact, sampled
from rftlab.studies.theory.models import (
    MEAN,
    RAW,
    RLOO,
    ExactPolicy,
    PassRates,
    beta_rates,
    by_count,
    constant,
    logit_moments,
    moments,
    one_correct,
    one_logit,
    softmax,
    weights,
)


def spread(policy: ExactPolicy, baseline: float) -> float:
    """Total variance of one response's gradient with a constant baseline."""
    return moments(policy, MEAN, 1, constant(baseline))[1]


def best_baseline(policy: ExactPolicy) -> float:
    """The baseline of least variance: the vertex of the parabola through three measured variances."""
    none, half, one = (spread(policy, b) for b in (0.0, 0.5, 1.0))
    bend = 2 * (none - 2 * half + one)
    return 0.5 - (one - none) / (2 * bend)


def optimal_baseline(mutant: int) -> list[MeasuredValue]:
    """T10. The mutant divides by E[r], as a survey prints it."""
    policy, found = softmax([0.3, -0.2, 0.9, 0.1], [1, 0, 0, 1]), []
    norm = (policy.scores**2).sum(axis=1)
    size, weighted = float(policy.probs @ norm), float((policy.probs * policy.correct) @ norm)
    best = weighted / (policy.pass_rate if mutant else size)
    found.append(exact("b* of a four-arm softmax", best, best_baseline(policy)))
    found += [
        exact(f"V({b}) - V(b*)", (b - best) ** 2 * size, spread(policy, b) - spread(policy, best)) for b in (-0.5, 0.9)
    ]
    for arms, p in ((2, 0.1), (2, 0.7), (3, 0.3), (10, 0.2)):
        closed = (1 - p) ** 2 * arms / (arms - 1) if mutant else arms * p * (1 - p) / (arms - 2 + arms * p)
        found.append(exact(f"b*, one correct arm of {arms}, p={p}", closed, best_baseline(one_correct(arms, p))))
    return found


def value_baseline(mutant: int) -> list[MeasuredValue]:
    """T11. The greedy response is right at p = .7, so ReMax's baseline is 1."""
    found, base = [], (lambda p: 1 - p) if mutant == 1 else (lambda p: p)
    for arms in (2, 3, 5, 10):

        def harm(p: float, arms: int = arms) -> float:
            return spread(one_correct(arms, p), base(p)) - spread(one_correct(arms, p), 0.0)

        limit = crossing(harm)
        found.append(exact(f"pass rate above which the value baseline hurts, A={arms}", (arms + 2) / (3 * arms), limit))
    for p in (0.3, 0.7):
        q, policy, remax = 1 - p, one_logit(p), p > 0.5
        squared = float(policy.gradient @ policy.gradient) if mutant == 3 else 0.0
        for name, expected, baseline in (
            ("without baseline", p * q**3, 0.0),
            ("of the value baseline", p * q * (1 - 2 * p) ** 2, base(p)),
            ("of ReMax", p**3 * q if remax else p * q**3, float(remax != (mutant == 2))),
            ("of baseline 1-p", 0.0, q),
        ):
            found.append(exact(f"V {name}, p={p}", expected, spread(policy, baseline) + squared))
    return found


def crossing(difference: Callable[[float], float], low: float = 0.02, high: float = 0.98) -> float:
    """The pass rate at which a difference changes its sign; nan where it does not."""
    return (
        brentq(difference, low, high, xtol=1e-14, rtol=1e-14)
        if difference(low) * difference(high) < 0
        else float("nan")
    )


def leave_one_out(mutant: int) -> list[MeasuredValue]:
    """T12."""
    found, advantage = [], MEAN if mutant else RLOO
    for policy in (softmax([0.3, -0.2, 0.9, 0.1], [1, 0, 0, 1]), softmax([1.2, 0.4, -0.7], [0, 0, 1])):
        p, single = policy.pass_rate, spread(policy, policy.pass_rate)
        rest = p * (1 - p) - float(policy.gradient @ policy.gradient)
        for size in range(2, 6):
            expected = ((size - 2) * single + 2 * rest) / (size * (size - 1))
            name = f"V, {p:.3f} right of {policy.probs.size} arms, K={size}"
            found.append(exact(name, expected, moments(policy, advantage, size)[1]))
    for size in (3, 4, 8, 64):
        rloo, raw = by_count(advantage, size), by_count(RAW, size)

        def loss(p: float, rloo=rloo, raw=raw) -> float:
            return variance(rloo, p) - variance(raw, p)

        limit = crossing(loss)
        found.append(
            exact(
                f"one logit: pass rate above which RLOO loses to raw, K={size}", (2 * size - 4) / (3 * size - 5), limit
            )
        )
    return found


def variance(counted, p: float) -> float:
    """Variance of a group's gradient in the one-logit model."""
    mean, second, _ = logit_moments(counted, p)
    return float(second - mean**2)


def total_variance(
    advantage: Advantage, size: int, rates: PassRates, rho: float, nuisance: float, between: bool = True
) -> float:
    """N V with i.i.d. contexts: K times E|g|^2 - |E g|^2 of a context's gradient g, `nuisance` the squared norm of
    its style score. Without `between`, the noise between contexts is left out."""
    mean, second, style = logit_moments(by_count(advantage, size), rates.values)
    common = rho * (rates.chances @ mean) ** 2 if between else rates.chances @ mean**2
    return size * float(rates.chances @ (second + nuisance * style) - common)


def budget_terms(rates: PassRates, rho: float, nuisance: float) -> tuple[float, float, float, float]:
    """N V = slope K + level + bend/(K-1) with RLOO, K >= 2, and `single` with the raw reward, K = 1."""
    u = rates.mean(lambda p, q: p * q)
    square = rates.mean(lambda p, q: (p * q) ** 2)
    slope, noise = square - rho * u**2, nuisance * u
    single = slope + rates.mean(lambda p, q: p * q**3) + nuisance * rates.mean(lambda p, q: p)
    return slope, u - 4 * square + noise, 2 * square + noise, single


def predicted(size: int, terms: tuple[float, float, float, float]) -> float:
    """N V of `budget_terms` at K = size."""
    slope, level, bend, single = terms
    return slope * size + level + bend / (size - 1) if size > 1 else single


def best_size(measured: dict[int, float]) -> float:
    """K* from three measured values: the least point of slope K + level + bend/(K-1)."""
    slope, _, bend = np.linalg.solve(
        [[size, 1, 1 / (size - 1)] for size in (2, 4, 8)], [measured[size] for size in (2, 4, 8)]
    )
    return 1 + float(np.sqrt(bend / slope)) if bend * slope > 0 else float("nan")


SIZES = (1, 2, 4, 8, 16)


def split(mutant: int, cases: dict[str, tuple[PassRates, float, float]], drawn: tuple[int, ...]) -> list[MeasuredValue]:
    """T13 and T14: every case (pass rates, rho, nuisance) exactly, the last one also in drawn batches of N = 48 at
    the K of `drawn`."""
    found, advantage, between = [], MEAN if mutant == 1 else RLOO, mutant != 2
    for name, case in cases.items():
        terms = budget_terms(*case)
        measured = {size: total_variance(advantage, size, *case, between) for size in SIZES}
        found += [exact(f"N V, {name}, K={size}", predicted(size, terms), value) for size, value in measured.items()]
        found.append(exact(f"K*, {name}", 1 + np.sqrt(terms[2] / terms[0]), best_size(measured)))
    rates, _, style = case
    for size in drawn:
        found.append(
            sampled(
                f"N V in batches of 48, {name}, K={size}",
                predicted(size, terms),
                drawn_deviations(advantage, size, rates, style, between=between),
            )
        )
    return found


def drawn_deviations(
    advantage: Advantage,
    size: int,
    rates: PassRates,
    nuisance: float,
    n: int = 28_000,
    budget: int = 48,
    between: bool = True,
) -> np.ndarray:
    """N |g - E g|^2 of n batches of `budget` rollouts on i.i.d. contexts with one feature: the parts along the logit
    and along the style. Without `between`, E g is that of the contexts drawn."""
    rng = np.random.default_rng(size)
    p = rng.choice(rates.values, p=rates.chances, size=(n * budget // size, 1))
    rewards = (rng.random((p.size, size)) < p).astype(np.float64)
    weight = weights(advantage, rewards)
    along = (weight * (rewards - p)).sum(axis=1).reshape(n, -1).mean(axis=1)
    style = np.sqrt(nuisance * (weight**2).sum(axis=1)) * rng.standard_normal(p.size) if nuisance else np.zeros(p.size)
    expected = rates.mean(lambda p, q: p * q) if between else (p * (1 - p)).reshape(n, -1).mean(axis=1)
    return budget * ((along - expected) ** 2 + style.reshape(n, -1).mean(axis=1) ** 2)


def budget(mutant: int) -> list[MeasuredValue]:
    """T13."""
    some, uniform = beta_rates(8, 24), beta_rates(1, 1)
    return split(
        mutant,
        {
            "Beta(8, 24), ρ=1": (some, 1.0, 0.0),
            "uniform, ρ=0": (uniform, 0.0, 0.0),
            "uniform, ρ=1": (uniform, 1.0, 0.0),
        },
        (1, 4),
    )


def nuisance(mutant: int) -> list[MeasuredValue]:
    """T14. The best and the worst K of the statement, of Beta(1, 3) and of the histograms of D1, by enumeration."""
    rates, advantage, between = beta_rates(1, 3), MEAN if mutant == 1 else RLOO, mutant != 2
    found = split(
        mutant, {"Beta(1, 3), ρ=1, ν²=4": (rates, 1.0, 4.0), "Beta(1, 3), ρ=1, ν²=1": (rates, 1.0, 1.0)}, (2, 8)
    )
    for name, levels in EXTREMES.items():
        rates = HISTOGRAMS.get(name, rates)
        for style, (best, worst) in levels.items():
            level = 0.0 if mutant == 3 else style
            measured = {k: total_variance(advantage, k, rates, 1.0, level, between) for k in range(1, 65)}
            found.append(exact(f"best K, {name}, ν²={style:g}", best, min(measured, key=measured.__getitem__)))
            found.append(exact(f"worst K of five, {name}, ν²={style:g}", worst, max(SIZES, key=measured.__getitem__)))
    return found


EXTREMES = {
    "Beta(1, 3)": {1.0: (7, 2), 4.0: (11, 2)},
    "weak base": {1.0: (1, 16), 4.0: (8, 2)},
    "bimodal": {1.0: (4, 1), 4.0: (7, 1)},
    "medium": {1.0: (8, 1), 4.0: (14, 1)},
    "strong": {1.0: (5, 1), 4.0: (8, 1)},
}
"""T14: by distribution of pass rates and nuisance, the best K of 1 to 64 and the worst of 1, 2, 4, 8, 16."""


POPULATION = np.array([0.02, 0.1, 0.3, 0.5, 0.8, 0.95, 0.6])


def without_replacement(mutant: int) -> list[MeasuredValue]:
    """T15. All batches of seven contexts, and the order in which the simulator visits them. The mutant draws
    contexts anew each time."""
    found, n = [], POPULATION.size
    mean, second, _ = logit_moments(by_count(RLOO, 4), POPULATION)
    within, between = second - mean**2, mean.var()
    for size in (2, 3, 6):
        chosen = np.array(list(product(range(n), repeat=size) if mutant else combinations(range(n), size)))
        measured = mean[chosen].mean(axis=1).var() + within[chosen].sum(axis=1).mean() / size**2
        found.append(
            exact(f"V, B={size} of {n}", between / size * (n - size) / (n - 1) + within.mean() / size, float(measured))
        )
    size, rounds = 4, 20_000
    visited = np.random.default_rng(0).integers(0, n, (rounds, size)) if mutant else batches(n, size, 0, 0, rounds)
    deviations = (mean[visited].mean(axis=1) - mean.mean()) ** 2
    return [
        *found,
        sampled(
            f"between-context part in the simulator's order, B={size} of {n}",
            between / size * (n - size) / (n - 1),
            deviations,
        ),
    ]


def integer_best(terms: tuple[float, float, float, float]) -> int:
    """The K >= 2 of least variance, RLOO, at a fixed budget: the first with K(K-1) >= bend/slope."""
    return max(2, int(np.ceil(0.5 + np.sqrt(0.25 + terms[2] / terms[0]) - 1e-9)))


HISTOGRAMS = {
    "weak base": PassRates(np.array([0.0, 0.05, 0.2, 0.5]), np.array([0.5, 0.3, 0.15, 0.05])),
    "bimodal": PassRates(np.array([0.0, 0.1, 0.5, 0.9, 1.0]), np.array([0.45, 0.1, 0.1, 0.1, 0.25])),
    "medium": PassRates(np.array([0.1, 0.3, 0.5, 0.7, 0.9]), np.full(5, 0.2)),
    "strong": PassRates(np.array([0.5, 0.8, 0.95, 1.0]), np.array([0.1, 0.2, 0.3, 0.4])),
}


def best_split(mutant: int) -> list[MeasuredValue]:
    """D1. Every K from 1 to 64 by enumeration, for four histograms of pass rates and three levels of nuisance."""
    found, sizes = [], range(2, 65)
    for name, rates in HISTOGRAMS.items():
        for style in (0.0, 1.0, 4.0):
            terms, case = budget_terms(rates, 1.0, style), f"{name}, ν²={style:g}"
            between, advantage = mutant != 2, MEAN if mutant == 1 else RLOO
            measured = [total_variance(advantage, size, rates, 1.0, style, between) for size in sizes]
            found.append(exact(f"best K ≥ 2, {case}", integer_best(terms), sizes[int(np.argmin(measured))]))
            lead = (
                style * rates.mean(lambda p, q: p * p)
                + rates.mean(lambda p, q: p * p * q * (2 - 3 * p))
                - 2 * np.sqrt(terms[0] * terms[2])
            )
            single = total_variance(RLOO, 1, rates, 1.0, style, between)
            gap = single - (2 * np.sqrt(terms[0] * terms[2]) + terms[0] + terms[1])
            found.append(exact(f"N V of raw K=1 less that of RLOO at K*, {case}", lead, gap, 1e-9))
    return found


CHECKS = (
    Check(
        id="T10",
        statement="The baseline of least variance is the reward's mean weighted by the squared score; any "
        "other costs its squared distance times E|s|². "
        "For two arms it is 1−p, the opposite of the value p.",
        formula=(
            "b* = E[r|s|²]/E[|s|²], V(b) − V(b*) = (b−b*)² E|s|²; one correct arm of A, wrong ones alike: "
            "b* = A p q/(A−2+A p)"
        ),
        latex=(
            r"b^* = \frac{\mathbb{E}[r|s|^2]}{\mathbb{E}[|s|^2]}, \qquad V(b) - V(b^*) = "
            r"(b-b^*)^2\,\mathbb{E}|s|^2, \qquad b^* = \frac{A p q}{A-2+A p}"
        ),
        source="Greensmith, Bartlett & Baxter 2004; the closed form is derived here",
        kind="exact",
        mutants=(Mutant("E[r] in the denominator"),),
        experiment=optimal_baseline,
        corrects="A survey prints E[r|s|²]/E[r]. With one correct arm of two and p = .1 that is 1.62, above "
        "every reward, "
        "where the variance is least at .9; at p = 0 it is 0/0.",
    ),
    Check(
        id="T11",
        statement="A perfect value baseline raises the variance once the pass rate is high enough, and ReMax's "
        "greedy baseline "
        "never lowers it where the reward decides the score: with one logit it changes nothing below p = 1/2 "
        "and costs a factor (p/q)² above.",
        formula="V(b=p) < V(0) iff p < (A+2)/(3A); one logit: V(0) = p q³, V(p) = p q (1−2p)², V(1−p) = 0, V(1) = p³ q",
        latex=(
            r"V(p) < V(0) \iff p < \frac{A+2}{3A}; \qquad V(0) = p q^3, \quad V(p) = p q (1-2p)^2, \quad "
            r"V(1-p) = 0, \quad V(1) = p^3 q"
        ),
        source="derived here; ReMax: Li et al. 2023 (2310.10505)",
        kind="exact",
        mutants=(
            Mutant("1−p in place of the value", r"^pass rate|of the value"),
            Mutant("the least likely response in place of the greedy one", r"ReMax"),
            Mutant("the second moment in place of the variance", r"^V"),
        ),
        experiment=value_baseline,
        corrects="ReMax is presented as a variance reduction, and the value as the natural baseline. With one "
        "logit at p = .7 the variance is .0189 without "
        "a baseline, .0336 with the value and .1029 with ReMax's. (In directions that no reward depends on, "
        "T14, both do help there.)",
    ),
    Check(
        id="T12",
        statement="RLOO's variance has a part from single responses that falls like 1/K and a part from pairs "
        "that falls like 1/K². "
        "With one logit it beats the raw reward at equal K only below a pass rate that rises from 0 (K = 2) to 2/3.",
        formula=(
            "tr Var = [(K−2) V_p + 2(pq − |∇p|²)]/(K(K−1)), tabular softmax; one logit: RLOO beats raw iff "
            "p < (2K−4)/(3K−5)"
        ),
        latex=(
            r"\operatorname{tr}\operatorname{Var} = \frac{(K-2) V_p + 2(pq - |\nabla p|^2)}{K(K-1)}, \qquad "
            r"p < \frac{2K-4}{3K-5}"
        ),
        source="derived here",
        kind="exact",
        mutants=(Mutant("the group mean, which includes the response itself"),),
        experiment=leave_one_out,
    ),
    Check(
        id="T13",
        statement="At a fixed number N = B K of rollouts, more rollouts of each context trade noise between "
        "contexts (grows with K) for noise within pairs "
        "(falls with K−1). Without nuisance, single rollouts with the raw reward can beat every K ≥ 2.",
        formula=(
            "N V = K σ_b² + E[u] − 4E[u²] + 2E[u²]/(K−1), u = pq, σ_b² = E[u²] − ρE[u]²; K = 1, raw: σ_b² "
            "+ E[pq³]; K* = 1 + √(2E[u²]/σ_b²)"
        ),
        latex=r"N V = K \sigma_b^2 + \mathbb{E}[u] - 4\mathbb{E}[u^2] + \frac{2\mathbb{E}[u^2]}{K-1}, \qquad "
        r"K^* = 1 + \sqrt{\frac{2\mathbb{E}[u^2]}{\sigma_b^2}}",
        source="derived here",
        kind="exact",
        mutants=(
            Mutant("the group mean, which includes the response itself", r"K=([248]|16)$|K\*"),
            Mutant("no noise between contexts"),
        ),
        experiment=budget,
    ),
    Check(
        id="T14",
        statement="Score directions that no reward depends on add their own noise, which larger groups reduce, so they "
        "raise the best K. With pass rates from Beta(1, 3) and ρ = 1 it is 7 at ν² = 1 and 11 at ν² = 4, and K = 2 is "
        "the worst of 1, 2, 4, 8 and 16. Neither holds in general: of the four histograms of D1 at the same two levels "
        "the best K is 1, 4, 5 or 14 in four of eight cases, and the worst is K = 1 (raw reward) in six, K = 2 in one.",
        formula="N V gains ν² E[u] K/(K−1) for K ≥ 2, ν² E[p] for raw K = 1; K* = 1 + √((2E[u²] + ν²E[u])/σ_b²)",
        latex=(
            r"N V \mathrel{+}= \nu^2\,\mathbb{E}[u]\,\frac{K}{K-1}, \qquad K^* = 1 + "
            r"\sqrt{\frac{2\mathbb{E}[u^2] + \nu^2\mathbb{E}[u]}{\sigma_b^2}}"
        ),
        source="derived here",
        kind="exact",
        mutants=(
            Mutant("the group mean, which includes the response itself", r"K=([248]|16)$|K\*|^best"),
            Mutant("no noise between contexts", r"^N V.*K=([148]|16)$|^best|^worst.*weak base, ν²=1"),
            Mutant("no nuisance", r"^worst.*(Beta|bimodal|medium|strong|ν²=4)"),
        ),
        experiment=nuisance,
    ),
    Check(
        id="T15",
        statement="Batches that go through the contexts without repeats have less noise between contexts, by "
        "the finite-population factor. "
        "At a fixed budget that lowers every split by nearly the same amount, so the best K stays.",
        formula="Var(mean over B of N_c contexts) = (σ_b²/B)(N_c−B)/(N_c−1)",
        latex=r"\operatorname{Var} = \frac{\sigma_b^2}{B}\cdot\frac{N_c-B}{N_c-1}",
        source="classical (sampling from a finite population)",
        kind="exact",
        mutants=(Mutant("contexts drawn with replacement"),),
        experiment=without_replacement,
    ),
    Check(
        id="D1",
        statement="The best number of rollouts per context follows from the pass rates' histogram and the "
        "nuisance alone, not from the budget. "
        "Single rollouts with the raw reward beat even that where pass rates are low: their disadvantage grows "
        "with E[p²].",
        formula=(
            "best K ≥ 2: ⌈½ + √(¼ + (2E[u²] + ν²E[u])/σ_b²)⌉; raw K = 1 beats RLOO at K* iff ν²E[p²] + "
            "E[p²q(2−3p)] < 2σ_b √(2E[u²] + ν²E[u])"
        ),
        latex=r"K = \left\lceil \frac{1}{2} + \sqrt{\frac{1}{4} + \frac{2\mathbb{E}[u^2] + "
        r"\nu^2\mathbb{E}[u]}{\sigma_b^2}} \right\rceil, \qquad "
        r"\nu^2\mathbb{E}[p^2] + \mathbb{E}[p^2 q(2-3p)] < 2\sigma_b\sqrt{2\mathbb{E}[u^2] + \nu^2\mathbb{E}[u]}",
        source="derived here",
        kind="exact",
        mutants=(
            Mutant("the group mean, which includes the response itself", r"^best"),
            Mutant("no noise between contexts", r"^N V"),
        ),
        experiment=best_split,
    ),
)
