"""What is taken off a response's reward before advantages are found: a KL penalty in the reward, and a penalty on
its length."""

from rftlab.shared.kl import kl_penalty
from rftlab.shared.plumbing.jit import inner, jit


@inner
def length_penalty(rule, length):
    """What a response of `length` tokens loses (DAPO, 2503.14476, eq. 13)."""
    return rule.coef * min(max((length - rule.limit + rule.buffer) / rule.buffer, 0.0), 1.0)


@jit
def shape_into(rule, rewards, starts, old_logp, ref_logp):
    """Shape rewards (R,) in place; starts (R+1,), old_logp and ref_logp (T,). KL values are summed over a response."""
    for row in range(rewards.shape[0]):
        length = starts[row + 1] - starts[row]
        if rule.shaping.coef > 0.0:
            rewards[row] -= length_penalty(rule.shaping, length)
        if rule.kl.in_reward > 0.0:
            for t in range(starts[row], starts[row + 1]):
                kl, _ = kl_penalty(rule.kl, old_logp[t], ref_logp[t])
                rewards[row] -= rule.kl.in_reward * kl
