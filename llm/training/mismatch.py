"""Mismatch: on policy, the engine and the trainer must give the same tokens the same log-probabilities.

Weights that were not taken over, another temperature, a truncated distribution or another tokenization show here at
once, and nowhere else: the run would go on and learn from ratios that are wrong.
"""

import numpy as np

from rftlab.shared.plumbing.errors import check


def check_mismatch(sampler_logp: np.ndarray, trainer_logp: np.ndarray, threshold: float, round_index: int) -> float:
    """Mean |difference| of log-probabilities (T,) of a round's tokens. Raises UserError where it is above the
    threshold."""
    difference = float(np.abs(sampler_logp - trainer_logp).mean())
    check(
        difference <= threshold,
        f"mismatch: in round {round_index + 1} the log-probabilities of sampler and trainer differ by "
        f"{difference:.2g} on average; allowed: {threshold:.2g}; "
        "the sampler may hold old weights or sample at another temperature",
    )
    return difference
