"""An answer with its format: drawn, scored, and its log-probability. It counts as one token, however many it is spelled
with.

Both rounds call these. Arms lie answer by answer, T for each; places are unsigned, because an index that may be below 0
costs two instructions more at each of the arrays.
"""

import numpy as np

from rftlab.shared.plumbing.jit import kernel
from rftlab.sim.policy.spelling import pick

N = np.uintp


@kernel(forceinline=True)
def draw_answer(plan, correct, formed, cdf, uniform, draw, at, arms):
    """Fill arms[at : at + T] and return the answer's format and reward.

    correct: bits of the right arms; formed: probability of a well-formed answer; cdf: running total of the
    probabilities; draw: the first of its T uniforms.
    """
    form, right = uniform[0, draw] < formed, np.uint32(1)
    for s in range(len(plan.token_starts)):
        arm = N(pick(plan, cdf, s, uniform[1, draw + N(s)]))
        arms[at + N(s)] = arm
        right &= correct >> np.uint32(arm)
    return form, right & np.uint32(form)


@kernel(forceinline=True)
def add_logits(plan, logits, row, arms, at, logp):
    """logp with the logits of the answer arms[at : at + T] added, one after the other."""
    for s in range(len(plan.token_starts)):
        logp += logits[row, N(arms[at + N(s)])]
    return logp


@kernel(forceinline=True)
def answer_logp(plan, view, row, arms, at, form):
    """Log-probability of the answer arms[at : at + T] with its format, under a policy (`Work` or `View`): the sum of
    its tokens'."""
    return add_logits(plan, view.logits, row, arms, at, -view.lse[row]) + view.format_logp[form, row]


@kernel(forceinline=True)
def base_answer_logp(plan, contexts, context, arms, at, form):
    """As `answer_logp`, under the base policy."""
    return (
        add_logits(plan, contexts.base_logits, context, arms, at, -contexts.base_lse[context])
        + contexts.base_format_logp[context, form]
    )
