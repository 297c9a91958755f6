"""Infer the simulator's parameters from a pilot by simulation: many parameter sets that fit, not one.

The method is population Monte Carlo (Cappé et al. 2004) with an annealed likelihood. The first generation of particles
is drawn from the prior, each later one around the particles that fit, and all of them are weighted against the mixture
of all proposals (Cornuet et al. 2012, 0907.1254). Every particle has a world seed and a training seed of its own, so
the posterior includes the effect of seeds on a curve. Equal evidence and seed give equal particles, whatever the number
of threads. An interrupted calibration therefore goes on from its stored log-likelihoods, and a finished one is read:

    results/calibrate/<pair>/<hash>.bin     log_likelihood (n,) as little-endian float64, after 32 bytes: a checksum of
                                            the name and the values. The hash is of the evidence and the seed
"""

import hashlib
from collections.abc import Callable
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from scipy.spatial.distance import cdist
from scipy.special import logsumexp
from scipy.stats import qmc

from rftlab import sim
from rftlab.shared.plumbing.callbacks import noop
from rftlab.shared.plumbing.errors import UserError
from rftlab.shared.plumbing.files import reported, write_file
from rftlab.shared.plumbing.folders import below, path_kind, read_file, remove
from rftlab.sim.config import Simulation
from rftlab.sim.environments import build
from rftlab.sim.run import simulate
from rftlab.studies.data.runs.runner import workers
from rftlab.studies.forecast.evidence import Evidence
from rftlab.studies.forecast.knobs import build_world

ENOUGH = 24.0
"""Effective number of particles that annealing keeps: the likelihood's power is lowered until this many count."""
DEFENSIVE = 0.15
"""Share of a generation that is drawn from the prior, so that weights stay bounded."""
DRAWS = 32
"""Number of parameter sets resampled from the posterior, which stand for it in forecasts."""


NOTHING = np.empty(0)
Density = Callable[[np.ndarray], np.ndarray]
"""Function from coordinates (n, k) to their log density (n,)."""
Proposal = tuple[int, Density]
"""The distribution of a generation: its size and its log density."""
Keep = Callable[[np.ndarray], None]
Progress = Callable[[int, int], None]


class Particles(NamedTuple):
    """Parameter sets that were tried: standard coordinates (n, k), log-likelihoods (n,), seeds (n,)."""

    coordinates: np.ndarray
    log_likelihood: np.ndarray
    seeds: np.ndarray


class Posterior(NamedTuple):
    """Parameter sets with weights that sum to 1, and DRAWS of them, resampled by weight, that stand for all."""

    evidence: Evidence
    particles: Particles
    weights: np.ndarray
    temperature: float
    """Power of the likelihood at which the weights were taken: 1, or less where too few particles fit."""
    draws: np.ndarray
    """Indices of the resampled particles."""

    @property
    def effective(self) -> float:
        """Effective number of particles, 1 / sum of squared weights."""
        return float(1 / (self.weights**2).sum())

    def simulation(self, index: int) -> Simulation:
        """Return the simulation of a particle. One that cannot be simulated has weight 0, and is not to be asked
        for."""
        run = simulate_at(self.evidence, self.particles.coordinates[index], int(self.particles.seeds[index]))
        assert run is not None
        return run


def simulate_at(evidence: Evidence, coordinates: np.ndarray, seed: int) -> Simulation | None:
    """Return the simulation at standard coordinates, with world and training seeded by `seed`; None where no base
    policy can be as measured."""
    start = build_world(evidence.facts, coordinates, seed)
    return None if start is None else replace(start, seed=seed)


def log_likelihood(evidence: Evidence, coordinates: np.ndarray, seed: int) -> float:
    """Return the log-likelihood of all runs of the evidence; -inf where no base policy can be as measured."""
    start = simulate_at(evidence, coordinates, seed)
    if start is None:
        return -np.inf
    world, total = build(start.environment), 0.0
    for run in evidence.runs:
        total += run.log_likelihood(simulate(replace(start, design=run.design), world).curve, evidence.freedom)
    return total


def calibrate(
    evidence: Evidence,
    seed: int,
    threads: int,
    known: np.ndarray = NOTHING,
    keep: Keep = noop,
    progress: Progress = noop,
) -> Posterior:
    """Return the posterior of the simulator's parameters.

    known: log-likelihoods of an earlier call with the same evidence and seed, which are not computed again. keep:
    called with all log-likelihoods after each generation. progress: called with the number of particles simulated and
    of all. Raises UserError where no particle can have the measured base model.
    """
    family = evidence.facts.family
    n_knobs, effort = len(family.knobs), family.effort
    particles = Particles(np.empty((0, n_knobs)), np.empty(0), np.empty(0, dtype=np.int64))
    proposals: list[Proposal] = []
    with workers(threads) as pool:
        for generation in range(effort.generations + 1):
            rng = np.random.Generator(np.random.Philox(key=np.array([seed, generation], dtype=np.uint64)))
            if generation == 0:
                drawn = qmc.MultivariateNormalQMC(np.zeros(n_knobs), seed=seed).random(effort.first)
                density: Density = log_prior
            else:
                drawn, density = _next(particles, proposals, effort.later, rng)
            proposals.append((len(drawn), density))
            first, seeds = len(particles.seeds), len(particles.seeds) + np.arange(len(drawn))
            values = list(known[first : first + len(drawn)])
            left = zip(drawn[len(values) :], seeds[len(values) :].tolist(), strict=True)
            for value in pool.map(lambda job: log_likelihood(evidence, *job), left):
                values.append(value)
                progress(first + len(values), effort.total)
            particles = Particles(
                np.vstack([particles.coordinates, drawn]),
                np.append(particles.log_likelihood, values),
                np.append(particles.seeds, seeds),
            )
            keep(particles.log_likelihood)
            if not np.isfinite(particles.log_likelihood).any():
                facts = evidence.facts
                raise UserError(
                    f"a base model right in {facts.strict:.2%} of its responses and well formed in {facts.formed:.2%}; "
                    "allowed: what a simulated base policy can be"
                )
    weights, temperature = _weights(particles, proposals)
    return Posterior(evidence, particles, weights, temperature, _resample(weights, rng, DRAWS))


def log_prior(coordinates: np.ndarray) -> np.ndarray:
    """Return the log density (n,) of standard normal coordinates (n, k)."""
    return -0.5 * (coordinates**2 + np.log(2 * np.pi)).sum(axis=1)


def _next(
    particles: Particles, proposals: list[Proposal], size: int, rng: np.random.Generator
) -> tuple[np.ndarray, Density]:
    """Draw a generation: from the prior, and from a kernel density around the particles that fit, whose covariance is
    1.5 times Silverman's. Return its coordinates (size, k) and the log density of the mixture."""
    weights, _ = _weights(particles, proposals)
    n_prior = round(DEFENSIVE * size)
    centres = particles.coordinates[_resample(weights, rng, size - n_prior)]
    spread = np.cov(particles.coordinates.T, aweights=weights) + 1e-4 * np.eye(particles.coordinates.shape[1])
    effective, k = 1 / (weights**2).sum(), spread.shape[0]
    spread = spread * (4 / (effective * (k + 2))) ** (2 / (k + 4)) * 1.5
    root = np.linalg.cholesky(spread)
    drawn = np.vstack([rng.standard_normal((n_prior, k)), centres + rng.standard_normal(centres.shape) @ root.T])
    middles, counts = np.unique(centres, axis=0, return_counts=True)
    whiten = np.linalg.inv(root).T
    scale = 0.5 * k * np.log(2 * np.pi) + np.log(np.diag(root)).sum()

    def density(points: np.ndarray) -> np.ndarray:
        kernels = -0.5 * cdist(points @ whiten, middles @ whiten, "sqeuclidean") - scale
        mixture = logsumexp(kernels, axis=1, b=counts / size)
        return np.logaddexp(np.log(n_prior / size) + log_prior(points), mixture)

    return drawn, density


def _weights(particles: Particles, proposals: list[Proposal]) -> tuple[np.ndarray, float]:
    """Return normalized weights against the mixture of all proposals, and the power of the likelihood that they are
    taken at: the largest that keeps ENOUGH particles effective."""
    n = len(particles.coordinates)
    parts = [np.log(size / n) + density(particles.coordinates) for size, density in proposals]
    ratio, likely = log_prior(particles.coordinates) - logsumexp(np.stack(parts), axis=0), particles.log_likelihood

    def at(power: float) -> np.ndarray:
        log = np.where(np.isfinite(likely), power * np.nan_to_num(likely, neginf=0.0) + ratio, -np.inf)
        weights = np.exp(log - log.max())
        return weights / weights.sum()

    low, high = 0.0, 1.0
    if 1 / (at(1.0) ** 2).sum() >= ENOUGH:
        return at(1.0), 1.0
    for _ in range(30):
        middle = (low + high) / 2
        low, high = (middle, high) if 1 / (at(middle) ** 2).sum() >= ENOUGH else (low, middle)
    return at(low), low


def _resample(weights: np.ndarray, rng: np.random.Generator, n: int) -> np.ndarray:
    """Return indices (n,) of particles, drawn by systematic resampling."""
    return np.searchsorted(np.cumsum(weights), (np.arange(n) + rng.random()) / n).clip(max=len(weights) - 1)


def calibrated(
    root: Path,
    pair: str,
    evidence: Evidence,
    seed: int,
    threads: int,
    progress: Progress,
    remark: Callable[[str], None],
) -> Posterior:
    """Return the posterior, using and keeping log-likelihoods in a results folder. A damaged file is reported to
    `remark` and computed again."""
    path = below(root, "calibrate", pair, f"{identity(evidence, seed)}.bin")

    def keep(values: np.ndarray) -> None:
        data = values.astype("<f8").tobytes()
        with reported(path):
            write_file(path, _sum(path, data) + data)

    return calibrate(evidence, seed, threads, _read(path, remark), keep, progress)


def identity(evidence: Evidence, seed: int) -> str:
    """Return a hash of everything that the particles depend on."""
    runs = [
        (asdict(run.design), run.rounds.tolist(), run.values.tolist(), run.errors.tolist()) for run in evidence.runs
    ]
    facts: tuple[Any, ...] = (sim.VERSION, seed, asdict(evidence.facts), runs)
    return hashlib.sha256(repr(facts).encode()).hexdigest()[:16]


def _read(path: Path, remark: Callable[[str], None]) -> np.ndarray:
    if not path_kind(path):
        return NOTHING
    try:
        data = read_file(path)
        values = np.frombuffer(data[32:], "<f8")
        if data[:32] != _sum(path, data[32:]) or np.isnan(values).any():
            raise ValueError("it was changed, or was written by another calibration or version of rftlab")
    except (OSError, ValueError) as damage:
        remark(f"damaged, redone: {path}: {damage}")
        with reported(path):
            remove(path)
        return NOTHING
    return values


def _sum(path: Path, data: bytes) -> bytes:
    return hashlib.sha256(path.stem.encode() + data).digest()
