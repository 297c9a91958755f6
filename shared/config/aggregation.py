"""Aggregation as data: the share of each token in the batch objective, J = sum_t share_t j_t.

Shares are computed once per optimiser batch; a micro-batch takes a slice of them, so the split changes nothing.
"""

from dataclasses import dataclass
from typing import Literal, NamedTuple, get_args

from rftlab.shared.errors import check, check_choice, check_finite, code_of

AggregationKind = Literal["token_mean", "token_sum", "seq_mean_token_sum", "seq_mean_token_mean"]
EmptyRule = Literal["skip", "count"]
TOKEN_MEAN = code_of(AggregationKind, "token_mean")
TOKEN_SUM = code_of(AggregationKind, "token_sum")
SEQ_MEAN_TOKEN_SUM = code_of(AggregationKind, "seq_mean_token_sum")


@dataclass(frozen=True)
class Aggregation:
    """How the objectives of tokens become the objective of a batch."""

    kind: AggregationKind = "seq_mean_token_sum"
    """Mean or sum over all tokens, or mean over responses of their token sums or token means."""
    length: float | None = None
    """Constant that divides token sums (Dr. GRPO's constant length, 2503.20783). None means 1."""
    eps: float = 0.0
    """Added to every token count that a mean divides by (some libraries add 1e-8)."""
    empty: EmptyRule = "skip"
    """Whether responses without tokens count in the mean over responses."""

    def __post_init__(self):
        check_choice("aggregation.kind", self.kind, get_args(AggregationKind))
        check_choice("aggregation.empty", self.empty, get_args(EmptyRule))
        check(
            self.length is None or self.kind.endswith("token_sum"),
            f"aggregation.length = {self.length!r}; allowed: None where kind is {self.kind}",
        )
        if self.length is not None:
            check_finite("aggregation.length", self.length, above=0)
        check_finite("aggregation.eps", self.eps, 0)


class AggregationRule(NamedTuple):
    """An `Aggregation` for kernels."""

    kind: int
    length: float
    eps: float
    count_empty: bool


def aggregation_rule(spec: Aggregation) -> AggregationRule:
    """The numbers that kernels take."""
    length = 1.0 if spec.length is None else float(spec.length)
    return AggregationRule(code_of(AggregationKind, spec.kind), length, float(spec.eps), spec.empty == "count")
