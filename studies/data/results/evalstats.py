"""How many seeds a difference needs, and what picking the best cell adds (more: shared/evalstats.py)."""

from functools import cache

import numpy as np
from scipy import integrate, stats

from rftlab.shared.plumbing.errors import check
from rftlab.studies.data.results.stats import t_errors


def power(seeds: int, effect: float, paired: bool = False, level: float = 0.05) -> float:
    """Chance that a two-sided t test finds a difference of `effect` standard deviations.

    Unpaired: `seeds` per arm, standard deviation of one run. Paired (common random numbers): standard deviation of a
    difference.
    """
    check(seeds >= 2, f"seeds = {seeds}; allowed: 2 or more")
    freedom = seeds - 1 if paired else 2 * (seeds - 1)
    shift = abs(effect) * np.sqrt(seeds if paired else seeds / 2)
    limit = t_errors(freedom, 1 - level)
    # the other tail by its mirror image: scipy's cdf is nan there for some shifts
    return float(stats.nct.sf(limit, freedom, shift) + stats.nct.sf(limit, freedom, -shift))


def seeds_needed(
    sigma: float, difference: float, paired: bool = False, chance: float = 0.8, level: float = 0.05
) -> int:
    """Fewest seeds per arm at which a t test finds `difference` with this chance; sigma as in `power`.

    The normal approximation 7.85 sigma^2/difference^2 (twice that unpaired) is one to three seeds too few.
    """
    check(
        sigma > 0 and difference != 0,
        f"sigma = {sigma}, difference = {difference}; allowed: sigma above 0, a difference other than 0",
    )
    low, seeds = 1, 2
    while power(seeds, difference / sigma, paired, level) < chance:
        low, seeds = seeds, 2 * seeds
        check(seeds <= MANY, f"difference = {difference:g} of sigma = {sigma:g}; allowed: one that {MANY} seeds show")
    while seeds - low > 1:  # more seeds never find less
        middle = (low + seeds) // 2
        low, seeds = (middle, seeds) if power(middle, difference / sigma, paired, level) < chance else (low, middle)
    return seeds


MANY = 1 << 20
"""Seeds; a difference that needs more is none."""


@cache
def expected_maximum(n: int) -> float:
    """E of the largest of n independent standard normals."""
    check(n >= 1, f"n = {n}; allowed: 1 or more")
    value, _ = integrate.quad(
        lambda x: x * n * stats.norm.pdf(x) * stats.norm.cdf(x) ** (n - 1),
        -12,
        12,
        epsabs=1e-13,
        epsrel=1e-12,
        limit=200,
    )
    return float(value)


def winners_curse(n: int, error: float, spread: float = 0.0) -> float:
    """By how much the measured value of the best of n cells exceeds its true value, on average.

    error: standard error of a cell's measurement; spread: standard deviation of the true values (normal). It is
    E[max] error^2/sqrt(error^2 + spread^2): all of E[max] error where the cells are equal, less where they differ.
    """
    total = float(np.hypot(error, spread))
    return expected_maximum(n) * error**2 / total if total > 0 else 0.0
