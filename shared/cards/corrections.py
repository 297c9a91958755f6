"""Cards of corrections for a sampler that differs from the trainer: other kernels, other precision, stale weights."""

from functools import partial

from rftlab.shared.cards.card import Card
from rftlab.shared.cards.paper import ZSCORE
from rftlab.shared.config.aggregation import Aggregation
from rftlab.shared.config.correction import Correction
from rftlab.shared.config.surrogate import Clip
from rftlab.shared.estimator import Estimator

_card = partial(Card, family="The sampler is not the trainer")


def _grpo(correction: Correction) -> Estimator:
    """Return GRPO without KL and with a mean over tokens, to which each correction of this file is added."""
    return Estimator(ZSCORE, Clip(), aggregation=Aggregation("token_mean"), correction=correction)


SAME = "Where sampler and trainer agree every weight is 1 and it is GRPO's estimator (T3). "
BLOG = "Liu et al. 2025 (When Speed Kills Stability)"

CARDS = (
    _card(
        name="tis",
        title="TIS, truncated importance sampling",
        source="Yao et al. 2025 (Off-Policy RL); truncation: arXiv 1606.02647",
        estimator=_grpo(Correction("truncate", "token", high=2.0)),
        formula="w_t = min(π_old / π_sampler, 2) of the token, times GRPO's j",
        bias=SAME + "Weights remove the mismatch's bias up to the cap and per token, not per response; they cost "
        "effective samples.",
        checks=("T3", "T18", "T33"),
        mirrors="verl 0.9.1 and oat (cap 2)",
    ),
    _card(
        name="tis_sequence",
        title="TIS with the weight of the response",
        source=f"{BLOG}; truncation: arXiv 1606.02647",
        estimator=_grpo(Correction("truncate", "sequence", high=2.0)),
        formula="w_i = min(Π_t π_old / π_sampler, 2), times GRPO's j on every token",
        bias=SAME
        + "Without the cap the weight of the response removes the whole bias; its variance grows exponentially "
        "with the length.",
        checks=("T3", "T18", "T33"),
        mirrors="TRL 1.x (`sequence_truncate`, cap of its recipe)",
    ),
    _card(
        name="icepop",
        title="Masked importance sampling of tokens (IcePop)",
        source="arXiv 2510.18855",
        estimator=_grpo(Correction("mask", "token", 0.5, 5.0)),
        formula="w_t = π_old / π_sampler where it lies in 0.5 .. 5, else 0",
        bias=SAME
        + "Tokens on which the two disagree teach nothing: bounded variance, and a bias from what is dropped.",
        checks=("T3", "T18", "T33"),
        mirrors="OpenRLHF (`icepop`, 0.5 and 5)",
    ),
    _card(
        name="mis",
        title="MIS, masked importance sampling of responses",
        source=BLOG,
        estimator=_grpo(Correction("mask", "sequence", 0.5, 2.0)),
        formula="w_i = Π_t π_old / π_sampler where it lies in 0.5 .. 2, else 0, on every token",
        bias=SAME
        + "A response on which the two disagree is dropped as a whole; long responses are dropped more often.",
        checks=("T3", "T18", "T33"),
        mirrors="TRL 1.x (`sequence_mask`, bounds of its recipe)",
    ),
    _card(
        name="mis_geometric",
        title="MIS with the geometric mean",
        source=BLOG,
        estimator=_grpo(Correction("mask", "geometric", 0.5, 2.0)),
        formula="w_i = exp(mean_t log(π_old / π_sampler)) where it lies in 0.5 .. 2, else 0, on every token",
        bias=SAME
        + "The mean does not grow with the length, so long responses stay; it is not an importance weight, so "
        "a bias stays too.",
        checks=("T3", "T18", "T33"),
        note="Left out: OpenRLHF's `seq-mask-tis`, which masks by this mean and weighs by token.",
    ),
    _card(
        name="sampler_ratio",
        title="PPO's ratio to the sampler",
        source="arXiv 1707.06347; as verl's `bypass_mode`",
        estimator=_grpo(Correction("ratio")),
        formula="ρ = π / π_sampler in GRPO's j; no weights",
        bias=SAME
        + "The clip then bounds mismatch and update together: a token that the two see differently is clipped "
        "before any update.",
        checks=("T3", "T18"),
        mirrors="verl 0.9.1 (`bypass_mode`)",
    ),
)
