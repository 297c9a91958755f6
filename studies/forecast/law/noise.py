"""Noise ratios r and phi with their errors: of a pilot's gradients, of a user's run as it trained
(studies/integrations/noise.py), and of the simulator.

The simulator's own round computes its gradients of single contexts: a round with one context, SGD and rate 1 moves the
weights by the gradient. Two such rounds of each context, with different random numbers, are the two groups that the
pilot's analysis of variance needs (studies/forecast/pilot/noise.py).
"""

from dataclasses import replace
from math import hypot, sqrt
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from rftlab.llm.probe_config import BLOCKS, GradientProducts
from rftlab.shared.cards import preset
from rftlab.shared.design import Design
from rftlab.shared.effective_batch import NoiseRatios
from rftlab.shared.estimator import Estimator
from rftlab.shared.plumbing.errors import UserError, check
from rftlab.sim.config import Optimizer, Simulation
from rftlab.sim.round.plain import train_rounds
from rftlab.sim.run import GeneralLearner, PlainLearner
from rftlab.sim.setup import is_general
from rftlab.sim.state import no_totals
from rftlab.sim.world import World
from rftlab.studies.data.runs.files import read_checksummed
from rftlab.studies.forecast.pilot.headroom import GROUPS, measure_entropy, measure_silence
from rftlab.studies.forecast.pilot.noise import Gradient, GradientRatios, analyse, inverse_weights, measure_ratios
from rftlab.studies.forecast.pilot.pilot import Base, PilotMeasurements
from rftlab.studies.forecast.pilot.store import DamagedPilot, read_measurements
from rftlab.studies.integrations.noise import FORMAT, KIND

SURE = 2.0
"""Standard errors by which phi must differ from 1; where it does not, forecasts take 1."""
CONTEXTS, GROUP, PARTS = 512, 16, 16
"""Sizes of a measurement in the simulator: contexts, responses of a group, and blocks of the jackknife."""
FIRST = 10**6
"""Round of the first random numbers, beyond those of training."""
LARGEST = 10**6
"""Largest number of responses, prompts times responses to each, that a file may have."""
PILOTS = {"pilot.json": PilotMeasurements, "base.json": Base}
"""Names of a pilot's files, and the class of what each holds."""


class MeasuredNoise(NamedTuple):
    """Noise ratios r and phi of shared/effective_batch.py, with standard errors."""

    between: float
    between_error: float
    gain: float
    gain_error: float

    @property
    def ratios(self) -> NoiseRatios:
        """Return the values that a forecast uses: an r below 0 is 0, and phi is 1 where it does not differ from 1 by
        two errors."""
        sure = abs(self.gain - 1) >= SURE * self.gain_error and self.gain > 0
        return NoiseRatios(max(0.0, self.between), self.gain if sure else 1.0)


def combine_gradients(raw: Gradient, centred: Gradient) -> MeasuredNoise:
    """Return r and phi from the noise of gradients with raw and with centred rewards.

    In theory both have the same noise between prompts, so their mean by inverse variances is taken. The noise of
    centred rewards includes that of a baseline from `group` responses, which is taken out. Raises UserError where a
    group has one response, or no noise was found.
    """
    check(centred.group > 1, f"gradients of groups of {centred.group}; allowed: 2 or more responses")
    noisy = raw.within > 0 and centred.within > 0
    check(noisy, "gradients without noise within a prompt: r and phi cannot be measured")
    errors = np.array([raw.between_error, centred.between_error])
    between = float(np.dot(inverse_weights(*errors), [raw.between, centred.between]))
    error = 1 / sqrt((1 / errors**2).sum()) if errors.all() else 0.0
    gain = centred.within / raw.within * (centred.group - 1) / centred.group
    relative = hypot(raw.within_error / raw.within, centred.within_error / centred.within)
    return MeasuredNoise(between / raw.within, error / raw.within, gain, gain * relative)


def pilot_noise(base: Base) -> MeasuredNoise:
    """Return r and phi that a pilot measured: half way through the baseline's run where it went there, else of the base
    model. Errors are those of the ratios where the pilot kept them, else from those of their parts, as if raw and
    centred rewards were of different responses. Raises UserError where the pilot has no gradients."""
    measured = base.midway or base
    if measured.ratios is None:
        if measured.raw is None or measured.centred is None:
            raise UserError(f"the pilot of {base.pair} has no gradients; allowed: one with training questions")
        return combine_gradients(measured.raw, measured.centred)
    return ratio_noise(measured.ratios)


def ratio_noise(ratios: GradientRatios) -> MeasuredNoise:
    """Return measured r and phi with their own errors."""
    r, phi = ratios.between, ratios.gain
    return MeasuredNoise(r.value, r.error, phi.value, phi.error)


class MeasuredRun(NamedTuple):
    """Rewards and lengths of K responses to each of G prompts, and r and phi."""

    rounds: tuple[int, int]
    """First and last round of the measurement."""
    rewards: np.ndarray
    """Rewards (G, K)."""
    lengths: np.ndarray
    """Tokens (G, K) of the responses."""
    entropy: float
    """Entropy of a token in nats; nan where the trainer did not show it."""
    ratios: GradientRatios | None
    """Noise ratios r and phi; None where the trainer shows no gradients, or they have no noise within a prompt."""

    @property
    def counts(self) -> np.ndarray | None:
        """Right responses (G,); None where rewards are not 0 or 1."""
        binary = set(np.unique(self.rewards)) <= {0.0, 1.0}
        return self.rewards.sum(axis=1).astype(np.int64) if binary else None

    def sentences(self) -> list[str]:
        """Return the measurements in sentences."""
        prompts, k = self.rewards.shape
        entropy = "" if np.isnan(self.entropy) else f", entropy of a token {self.entropy:.2f} nats"
        said = [
            f"measured in rounds {self.rounds[0]} to {self.rounds[1]} of the run, {prompts} prompts x {k} responses: "
            f"mean reward {self.rewards.mean():.3f}, {self.lengths.mean():.0f} tokens a response{entropy}"
        ]
        if self.counts is not None:
            silent = [one for size in GROUPS if (one := measure_silence(self.counts, k, size))]
            said.append("zero-variance groups: " + ", ".join(f"{one.value:.0%} of {one.at:g}" for one in silent))
        return said


def file_noise(path: Path) -> tuple[MeasuredNoise, list[str]]:
    """Return r and phi of a file, and in sentences what it measured. Raises UserError for a file that cannot be
    trusted, and for one without gradients."""
    if path.name in PILOTS:
        try:
            known: Any = read_measurements(path.absolute(), PILOTS[path.name])
        except DamagedPilot as damage:
            raise UserError(f"damaged: {damage}; run `rftlab pilot` again") from None
        check(known is not None, f"{path} is missing; allowed: a pilot's {path.name}, or a {KIND}.json")
        base: Base = getattr(known, "base", known)
        return pilot_noise(base), [f"r and phi are those of the pilot of {base.pair}"]
    run = read_law_run(path)
    if run.ratios is None:
        raise UserError(
            f"{path} has no gradients with noise within a prompt; allowed: one of MeasureNoise in TRL, or a pilot's"
        )
    return ratio_noise(run.ratios), run.sentences()


def read_law_run(path: Path) -> MeasuredRun:
    """Return the measurements of a run from a file. Raises UserError for a file that cannot be trusted."""
    try:
        content = read_checksummed(path.absolute(), [FORMAT, KIND])
        first, last = (int(value) for value in content["rounds"])
        known = {name: np.array(content[name], dtype=np.float64) for name in ("rewards", "lengths")}
        rewards, lengths = known["rewards"], known["lengths"]
        whole = all(np.isfinite(table).all() for table in known.values()) and (lengths >= 0).all()
        fits = rewards.ndim == 2 and rewards.shape == lengths.shape and 2 <= rewards.size <= LARGEST
        check(fits and bool(whole), "its tables are damaged")
        entropy = float("nan")
        if "surprise" in content:
            surprise = np.array(content["surprise"], dtype=np.float64)
            check(surprise.shape == rewards.shape and lengths.sum() > 0, "its tables are damaged")
            entropy = measure_entropy(surprise, lengths, 1.0).value
        ratios = _ratios(content, len(rewards)) if "raw" in content else None
        return MeasuredRun((first, last), rewards, lengths, entropy, ratios)
    except (OSError, LookupError, TypeError, ValueError, OverflowError, UserError) as error:
        said = str(error) if isinstance(error, UserError | ValueError | OSError) else f"{type(error).__name__}: {error}"
        raise UserError(f"{path}: {said[:200]}; allowed: a {KIND}.json of MeasureNoise or of verl") from None


def _ratios(content: dict[str, Any], prompts: int) -> GradientRatios | None:
    both = []
    for estimator in ("raw", "centred"):
        known = content[estimator]
        columns = {name: np.array(known[name], dtype=np.float64) for name in ("gram", "squares", "differences")}
        block = np.array(known["block"], dtype=np.int64)
        shapes = {name: column.shape for name, column in columns.items()} | {"block": block.shape}
        wanted = dict.fromkeys(shapes, (prompts,)) | {"gram": (BLOCKS, BLOCKS)}
        whole = all(np.isfinite(column).all() for column in columns.values()) and set(block) == set(range(BLOCKS))
        check(shapes == wanted and whole, f"its products of {estimator} gradients are damaged")
        both.append(GradientProducts(int(known["group"]), block, **columns))
    return measure_ratios(*both)


def simulate_noise(run: Simulation, world: World, rounds: int = 0, contexts: int = CONTEXTS) -> MeasuredNoise:
    """Return r and phi of the simulator after `rounds` rounds of a run's design. The environment must be one of the
    plain round."""
    learner = (GeneralLearner if is_general(run, world) else PlainLearner)(run, world)
    if rounds:
        learner.train(0, rounds, no_totals(), lambda: False)
    theta, n = learner.state.theta, world.train.base_format.shape[0]
    chosen = np.random.default_rng(run.seed).permutation(n)[: min(contexts, n)]
    raw, centred = (simulate_gradient(run, world, theta, chosen, preset(name)) for name in ("minimalist", "rloo"))
    return combine_gradients(raw, centred)


def simulate_gradient(
    run: Simulation, world: World, theta: np.ndarray, chosen: np.ndarray, estimator: Estimator
) -> Gradient:
    """Return signal and noise of the gradient at weights theta, from the chosen contexts."""
    design = Design(1, GROUP, estimator=estimator, rounds=1, eval_every=1)
    learner = PlainLearner(replace(run, design=design, optimizer=Optimizer("sgd", learning_rate=1.0)), world)
    block = np.arange(len(chosen)) % PARTS
    sums = np.zeros((PARTS, theta.size))
    squares, differences = np.zeros(len(chosen)), np.zeros(len(chosen))
    for i, context in enumerate(chosen):
        first, second = (context_gradient(learner, theta, int(context), FIRST + turn) for turn in (0, 1))
        mean, apart = (first + second) / 2, first - second
        sums[block[i]] += mean
        squares[i], differences[i] = mean @ mean, apart @ apart
    return analyse(GradientProducts(GROUP, block, sums @ sums.T, squares, differences))


def context_gradient(learner: PlainLearner, theta: np.ndarray, context: int, round_index: int) -> np.ndarray:
    """Return the gradient of one context at weights theta, with the random numbers of a round."""
    learner.state.theta[:] = theta
    train_rounds(learner.world.train, learner.plan, learner.rule, learner.state, learner.work,
                 np.array([[context]]), round_index, no_totals())  # fmt: skip
    return learner.state.theta.astype(np.float64) - theta
