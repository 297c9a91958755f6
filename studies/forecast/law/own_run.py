"""Measurements in a user's run as it trained (studies/integrations/noise.py), and r and phi from such a
file or from that of a pilot."""

from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from rftlab.llm.probe_config import BLOCKS, GradientProducts
from rftlab.shared.plumbing.errors import UserError, check
from rftlab.studies.data.runs.files import read_checksummed
from rftlab.studies.forecast.law.noise import MeasuredNoise, pilot_noise, ratio_noise
from rftlab.studies.forecast.pilot.headroom import GROUPS, measure_entropy, measure_silence
from rftlab.studies.forecast.pilot.noise import GradientRatios, measure_ratios
from rftlab.studies.forecast.pilot.pilot import Base, PilotMeasurements
from rftlab.studies.forecast.pilot.store import DamagedPilot, read_measurements
from rftlab.studies.integrations.noise import FORMAT, KIND

LARGEST = 10**6
"""Prompts times responses of a file."""
PILOTS = {"pilot.json": PilotMeasurements, "base.json": Base}
"""Files of pilots, and what they hold."""


class MeasuredRun(NamedTuple):
    """Rewards and lengths of K responses to each of G prompts, and r and phi."""

    rounds: tuple[int, int]
    """First and last."""
    rewards: np.ndarray
    """(G, K)"""
    lengths: np.ndarray
    """(G, K)"""
    entropy: float
    """Of a token, nats; nan where the trainer did not show it."""
    ratios: GradientRatios | None
    """None where the trainer shows no gradients, or they have no noise within a prompt."""

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
    """r and phi of a file, and in sentences what it measured. Raises UserError for a file that cannot be trusted, and
    for one without gradients."""
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
    """The measurements of a file. Raises UserError for one that cannot be trusted."""
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
