"""Virtual lengths: responses of one token that count as longer or shorter, by the style of their answers.

A response is as long as 1 + b side mean ones, b `Linear.length_by_style` and side the mean of its tokens' styles, from
-1 (the first) to 1 (the last). A mean over the tokens of a response then divides its weight by that, a mean over all
tokens divides by the length of the batch, and its nuisance has a variance in proportion to its length. Where the sums
of many style tokens are normal, that is what style tokens do in the general round, without their cost; ratios, masks
and KL penalties see the answer alone.
"""

from rftlab.shared.aggregation import response_share
from rftlab.shared.plumbing.jit import kernel
from rftlab.sim.policy.style import mean_side


@kernel
def relative_length(plan, arms, at):
    """Length of the response with the answer arms[at : at + T], relative to the mean."""
    return 1.0 + plan.length_by_style * mean_side(plan, len(plan.token_starts), arms, at)


@kernel
def total_length(plan, arms, first, last):
    """Length of the responses first .. last-1."""
    total, tokens = 0.0, len(plan.token_starts)
    for i in range(first, last):
        total += relative_length(plan, arms, i * tokens)
    return total


@kernel
def shares_by_length(plan, rule, arms, first, n, out):
    """Fill out[:n] with the shares (`rftlab.shared.aggregation`) of the responses first .. first+n-1 in an optimiser
    batch of out.shape[0] responses, which they are unless shares do not depend on other responses."""
    total, tokens = total_length(plan, arms, first, first + n), len(plan.token_starts)
    for row in range(n):
        low = first + row - row % rule.micro_batch
        near = total_length(plan, arms, low, min(low + rule.micro_batch, first + n))
        length = relative_length(plan, arms, (first + row) * tokens)
        out[row] = response_share(rule, length, near, total, float(out.shape[0]))
