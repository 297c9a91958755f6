"""Parameters that all contexts share besides the matrix W, such as those that make the policy sharper or more correct.

    z(x, a) = (1 + c_b th_b) z0(x, a) + 1[a correct] (c_s / sqrt M) sum_m th_m + 1[a long] c_v th_v + x W
    h(x) = h0(x) + c th_f - (d / 4) sum_m v_m^2

Most of what training changes at first in a pre-trained model is common to all questions. The model trusts its best
guess more (sharpening, c_b), and it applies skills that it has (correctness, c_s): M parameters, one for each template
or operation. Four parameters v_m only do harm (damage, d): noise alone moves them, so that they walk at random, and
their mean square lowers the logit h of the format. Learning rates that are too high, or many updates on a batch, break
a policy in this way, sooner with one seed than with another; the term has no derivative. One more parameter sets how
long answers are (verbosity, c_v; all styles but the first are long), and one how often style tokens are 1 (exploration,
c_x; `rftlab.sim.policy.style`). The parameters follow W in this order, before that of the format, th_f; where c_b, c_s,
d, c_v or c_x is 0, theirs do not exist. The base policy of a KL penalty does not have them. Knowledge of the base
policy may also fade as the parameters move away from it (forgetting, off by default). docs/simulator.md has the
equations, `rftlab.sim.round.common` the gradients.
"""

import math
from typing import NamedTuple

import numpy as np

from rftlab.shared.plumbing.jit import entry, kernel
from rftlab.sim.lanes.simd import LANES, keep_bits, load, splat, store
from rftlab.sim.policy.policy import F
from rftlab.sim.policy.versions import for_linear

_MIN = 1e-6
"""Smallest factor of logits under a policy that forgets or gets less sharp. Arms that do not exist have a logit of
-1e30, which must keep their probability at 0."""


@entry
def base_logit_scale(forgetting, theta, n_common=0):
    """Return exp(-forgetting |W|^2), at least 1e-6, the factor of the base policy's logits and format logits.

    theta: W, flat, then n_common parameters (`rftlab.sim.policy.common`) and that of the format; forgetting:
    `Linear.forgetting` over the number of arms, so that |W|^2 / A is the mean square of the change of a logit.
    """
    if forgetting == 0.0:
        return 1.0
    moved = 0.0
    for i in range(theta.shape[0] - 1 - n_common):
        moved += np.float64(theta[i]) * np.float64(theta[i])
    return max(math.exp(-forgetting * moved), _MIN)


class BasePolicy(NamedTuple):
    """Coefficients of the base policy's logits at some parameters."""

    kept: float
    """Factor of the format's logits: the part that is not forgotten."""
    scale: float
    """Factor of the arms' logits: `kept` times 1 + c_b th_b, where the latter is at least 1e-6."""
    slope: float
    """Derivative of `scale` with respect to th_b, with `kept` held fixed."""
    lift: float
    """Bonus of correct arms in the logits."""
    damage: float
    """Amount by which damage lowers the format's logit."""
    lengthen: float
    """Bonus of long arms in the logits."""
    explore: float
    """Bonus in the logits of style tokens."""


@kernel
def base_policy(plan, theta):
    """Return the coefficients of the base policy's logits at parameters theta."""
    kept = base_logit_scale(plan.forgetting, theta, plan.n_common)
    scale, slope, lift, at, stop = kept, 0.0, 0.0, theta.shape[0] - 1 - plan.n_common, theta.shape[0] - 1
    if plan.sharpening > 0.0:
        sharpness = 1.0 + plan.sharpening * np.float64(theta[at])
        scale = kept * max(sharpness, _MIN)
        slope = kept * plan.sharpening if sharpness > _MIN else 0.0
        at += 1
    lengthen = explore = damage = 0.0
    if plan.exploration > 0.0:
        stop -= 1
        explore = plan.exploration * np.float64(theta[stop])
    if plan.verbosity > 0.0:
        stop -= 1
        lengthen = plan.verbosity * np.float64(theta[stop])
    damaged = stop - plan.n_damaged
    for m in range(at, damaged):
        lift += np.float64(theta[m])
    for m in range(damaged, stop):
        damage += np.float64(theta[m]) ** 2
    return BasePolicy(kept, scale, slope, plan.correctness * lift, plan.damage * damage, lengthen, explore)


@for_linear
def raise_correct(contexts, batch, lift, logits):
    """Add `lift` to the logits of the correct arms of a batch's contexts."""
    for row in range(batch.shape[0]):
        bonus = keep_bits(splat(F(lift)), contexts.correct[batch[row]])
        store(logits, row * LANES, load(logits, row * LANES) + bonus)


@raise_correct.for_tabular
def _(contexts, batch, lift, logits):
    for row in range(batch.shape[0]):
        for a in range(logits.shape[1]):
            if (contexts.correct[batch[row]] >> np.uint32(a)) & np.uint32(1):
                logits[row, a] += lift


@for_linear
def raise_long(plan, n, lift, logits):
    """Add `lift` to the logits of the long arms of n rows."""
    bonus = keep_bits(splat(F(lift)), plan.long_arms)
    for row in range(n):
        store(logits, row * LANES, load(logits, row * LANES) + bonus)


@raise_long.for_tabular
def _(plan, n, lift, logits):
    for row in range(n):
        for a in range(logits.shape[1]):
            if (plan.long_arms >> np.uint32(a)) & np.uint32(1):
                logits[row, a] += lift


@kernel
def remember_base(base, view):
    """Copy the coefficients that the general round needs later to a `View`."""
    view.base_scale[0] = base.scale
    view.common[0], view.common[1], view.common[2], view.common[3] = base.slope, base.lift, base.lengthen, base.explore
