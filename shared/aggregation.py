"""Compute the share of each token in the batch objective, J = sum_t share_t j_t (aggregation).

Shares are computed once per optimiser batch; a micro-batch takes a slice of them, so the split changes nothing.
"""

import numpy as np

from rftlab.shared.config.aggregation import (
    MICRO_BATCH_TOKEN_MEAN,
    PROMPT_MEAN,
    SEQ_MEAN_TOKEN_MEAN,
    SEQ_MEAN_TOKEN_SUM,
    TOKEN_MEAN,
    TOKEN_SUM,
    Aggregation,
    aggregation_rule,
)
from rftlab.shared.plumbing.errors import UserError, check
from rftlab.shared.plumbing.jit import inner, jit


@inner
def response_share(rule, length, near, n_tokens, n_rows):
    """Return the share of a token in a response of `length` tokens; near: tokens of its micro-batch or prompt."""
    if rule.kind == TOKEN_MEAN:
        return 1.0 / (n_tokens + rule.eps)
    if rule.kind == TOKEN_SUM:
        return 1.0 / rule.length
    if rule.kind == SEQ_MEAN_TOKEN_SUM:
        return 1.0 / (n_rows * rule.length)
    if rule.kind == MICRO_BATCH_TOKEN_MEAN or rule.kind == PROMPT_MEAN:
        return 1.0 / (-(-n_rows // rule.micro_batch) * (near + rule.eps))
    if rule.kind != SEQ_MEAN_TOKEN_MEAN:
        raise UserError("aggregation.kind has a name that no kernel computes")
    return 1.0 / (n_rows * (length + rule.eps))


@jit
def shares_into(rule, starts, group, n_tokens, n_rows, out):
    """Fill out (T,) with shares. n_tokens and n_rows count tokens and responses of the optimiser batch; under
    prompt_mean n_rows counts prompts, and group (R,) is read."""
    rows, by_prompt = starts.shape[0] - 1, rule.kind == PROMPT_MEAN and starts.shape[0] > 1
    tokens_G = np.zeros(group.max() + 1 if by_prompt else 0, dtype=np.int64)
    if by_prompt:
        for row in range(rows):
            tokens_G[group[row]] += starts[row + 1] - starts[row]
    for row in range(rows):
        low = row - row % rule.micro_batch
        near = tokens_G[group[row]] if by_prompt else starts[min(low + rule.micro_batch, rows)] - starts[low]
        share = response_share(rule, starts[row + 1] - starts[row], near, n_tokens, n_rows)
        for t in range(starts[row], starts[row + 1]):
            out[t] = share


def check_starts(starts: np.ndarray) -> None:
    """Raise unless `starts` (R+1,) are offsets of packed responses."""
    if starts.ndim != 1 or starts.size == 0 or starts[0] != 0 or (np.diff(starts) < 0).any():
        raise UserError(f"starts = {starts!s:.60}; allowed: offsets that begin at 0 and never fall")


def row_count(spec: Aggregation, group: np.ndarray) -> int:
    """Return the number of units over which a mean runs, for responses in `group` (R,): prompts under prompt_mean, else
    responses."""
    return len(np.unique(group)) if spec.kind == "prompt_mean" else len(group)


def shares(
    spec: Aggregation,
    starts: np.ndarray,
    n_tokens: int | None = None,
    n_rows: int | None = None,
    group: np.ndarray | None = None,
) -> np.ndarray:
    """Return the share (T,) of each token of responses packed by `starts` (R+1,).

    token_mean              1/T
    token_sum               1/length
    seq_mean_token_sum      1/(R length)      with `length` the constant of Dr. GRPO, 1 by default
    seq_mean_token_mean     1/(R |o_i|)       GRPO, 2402.03300, eq. 3
    micro_batch_token_mean  1/(ceil(R/m) T_i) with T_i the tokens of the micro-batch of m responses that holds the token
    prompt_mean             1/(P T_p)         P prompts, T_p the tokens of the prompt; needs group (R,)
    n_tokens, n_rows replace T and R (P) where the optimiser batch is larger than what `starts` covers, which then
    begins with a micro-batch.
    """
    starts = np.asarray(starts, dtype=np.int64)
    check_starts(starts)
    check(n_tokens is None or n_tokens > 0, f"n_tokens = {n_tokens}; allowed: None or more than 0")
    check(n_rows is None or n_rows > 0, f"n_rows = {n_rows}; allowed: None or more than 0")
    rule, lengths_R, by_prompt = aggregation_rule(spec), np.diff(starts), spec.kind == "prompt_mean"
    check(group is not None or not by_prompt, "aggregation.kind prompt_mean needs group, the prompt of each response")
    _, group_R = np.unique(group if by_prompt and group is not None else lengths_R, return_inverse=True)
    check(group_R.shape == lengths_R.shape, f"group {group_R.shape} must have one entry per response {lengths_R.shape}")
    if n_tokens is None:
        n_tokens = int(starts[-1])
    if n_rows is None:
        n_rows = row_count(spec, group_R if rule.count_empty else group_R[lengths_R > 0])
    out_T = np.empty(int(starts[-1]))
    shares_into(rule, starts, group_R, float(n_tokens), float(n_rows), out_T)
    return out_T
