"""Configuration of the aggregation: the share of each token in the batch objective, J = sum_t share_t j_t.

Shares are computed once per optimiser batch; a micro-batch takes a slice of them, so the split changes nothing. The
micro-batches of `micro_batch_token_mean` are part of the objective, whatever the split.
"""

from typing import Literal, NamedTuple, get_args

from rftlab.shared.config.checked import config
from rftlab.shared.plumbing.errors import check, check_choice, check_count, check_finite, code_for

AggregationKind = Literal[
    "token_mean", "token_sum", "seq_mean_token_sum", "seq_mean_token_mean", "prompt_mean", "micro_batch_token_mean"
]
EmptyRule = Literal["skip", "count"]
TOKEN_MEAN = code_for(AggregationKind, "token_mean")
TOKEN_SUM = code_for(AggregationKind, "token_sum")
SEQ_MEAN_TOKEN_SUM = code_for(AggregationKind, "seq_mean_token_sum")
SEQ_MEAN_TOKEN_MEAN = code_for(AggregationKind, "seq_mean_token_mean")
PROMPT_MEAN = code_for(AggregationKind, "prompt_mean")
MICRO_BATCH_TOKEN_MEAN = code_for(AggregationKind, "micro_batch_token_mean")


@config
class Aggregation:
    """The map from the objectives of tokens to the objective of a batch."""

    kind: AggregationKind = "seq_mean_token_sum"
    """Mean or sum over all tokens; mean over responses of their token sums or token means; mean over prompts of the
    mean over the tokens of their responses (ScaleRL, 2510.13786); or mean over micro-batches of token means, as in
    trainers that average inside each backward pass."""
    length: float | None = None
    """Constant that divides token sums (Dr. GRPO's constant length, 2503.20783). None means 1."""
    eps: float = 0.0
    """Number added to every token count that a mean divides by (some libraries add 1e-8)."""
    empty: EmptyRule = "skip"
    """Whether responses, or prompts, without tokens count in the mean over them."""
    micro_batch: int | None = None
    """Responses of a micro-batch of micro_batch_token_mean, in the order of the batch; the last may have fewer."""

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
        by_parts = self.kind == "micro_batch_token_mean"
        if by_parts and self.micro_batch is not None:
            check_count("aggregation.micro_batch", self.micro_batch)
        allowed = "a whole number, 1 or more," if by_parts else "None"
        check(
            by_parts == (self.micro_batch is not None),
            f"aggregation.micro_batch = {self.micro_batch!r}; allowed: {allowed} where kind is {self.kind}",
        )


class AggregationRule(NamedTuple):
    """The numbers of an `Aggregation` that kernels take."""

    kind: int
    length: float
    eps: float
    count_empty: bool
    """Whether responses without tokens count in means over responses; in a micro-batch they always take a place."""
    micro_batch: int


def aggregation_rule(spec: Aggregation) -> AggregationRule:
    """Return the numbers of an aggregation's configuration that kernels take."""
    check_choice("aggregation.empty", spec.empty, ("skip", "count"))
    length = 1.0 if spec.length is None else float(spec.length)
    kind, count_empty = code_for(AggregationKind, spec.kind), spec.empty == "count" or spec.micro_batch is not None
    return AggregationRule(kind, length, float(spec.eps), count_empty, spec.micro_batch or 1)
