"""The scores of a general round: what the tokens of a context teach its logits and the format."""

import math

from rftlab.shared.jit import inner
from rftlab.sim.lanes.random import NUISANCE, normals
from rftlab.sim.policy.policy import add_arms, start_score, weight_sums
from rftlab.sim.policy.style import style_probability
from rftlab.sim.round.ragged import ARM, FIRST, FORM, PLAIN, PUSH, SIGNS, START, STYLE_LOGIT, STYLE_TOKEN, WEIGHT


@inner
def add_style_scores(plan, choices, rule, row, at, ragged, scores):
    """Add to scores[at] what the style tokens of a row say, entropy bonus included."""
    first = ragged.rows[FIRST]
    starts = ragged.ints[START]
    weights, style_logits, plain = ragged.tokens[WEIGHT], ragged.tokens[STYLE_LOGIT], ragged.tokens[PLAIN]
    signs_of, style_tokens = ragged.marks[SIGNS], ragged.marks[STYLE_TOKEN]
    ragged.style_score[:] = 0.0
    for i in range(first[row], first[row + 1]):
        for t in range(starts[i] + 1, starts[i + 1]):
            p = style_probability(style_logits[t])
            push = weights[t] * (style_tokens[t] - p) - rule.entropy * plain[t] * style_logits[t] * p * (1.0 - p)
            for a in range(plan.n_arms):
                ragged.style_score[a] += push if (signs_of[t] >> a) & 1 else -push
    for a in range(plan.n_arms):
        scores[at, a] += choices.style.slope * ragged.style_score[a]


@inner
def add_entropy(plan, view, row, share, scores):
    """Add share x the gradient of the entropy of a context's answer and format; returns its part for the format's
    logit."""
    entropy = 0.0
    for a in range(plan.n_arms):
        p = view.probs[row, a]
        entropy -= p * math.log(p) if p > 0.0 else 0.0
    for a in range(plan.n_arms):
        p = view.probs[row, a]
        scores[row, a] -= share * p * (math.log(p) + entropy) if p > 0.0 else 0.0
    formed, logit = view.formed[row], view.format_logp[1, row] - view.format_logp[0, row]
    return -share * logit * formed * (1.0 - formed) if math.isfinite(logit) else 0.0


@inner
def set_scores(plan, choices, rule, round_index, low, high, rows, view, ragged, grad):
    """Score of each of the rows low .. high-1; adds to the last entry of grad the format parameter's. As
    `rftlab.sim.round.plain.set_scores`, and more."""
    first = ragged.rows[FIRST]
    starts, arms, forms = ragged.ints[START], ragged.ints[ARM], ragged.ints[FORM]
    weights, plain, pushes = ragged.tokens[WEIGHT], ragged.tokens[PLAIN], ragged.numbers[PUSH]
    format_grad = 0.0
    gaussian = plan.nuisance > 0.0 and choices.style.tokens == 0.0
    if gaussian:
        normals(plan.key, round_index, rows, NUISANCE, ragged.noise)
    for row in range(low, high):
        at, a, b, bonus = row - low, first[row], first[row + 1], 0.0
        for i in range(a, b):
            pushes[i] = weights[starts[i]]
            bonus += rule.entropy * plain[starts[i]]
        weight, squares, formed = weight_sums(pushes[a:b], forms[a:b])
        start_score(
            view.probs,
            at,
            weight,
            plan.nuisance * math.sqrt(squares) if gaussian else 0.0,
            ragged.noise,
            plan.n_arms,
            ragged.scores,
        )
        add_arms(pushes[a:b], arms[a:b], 1, at, ragged.scores)
        format_grad += formed - weight * view.formed[at]
        if bonus > 0.0:
            format_grad += add_entropy(plan, view, at, bonus, ragged.scores)
        if choices.style.slope > 0.0:
            add_style_scores(plan, choices, rule, row, at, ragged, ragged.scores)
        if (at + 1) % plan.chunk == 0 or row + 1 == high:
            grad[-1] += plan.format_scale * format_grad
            format_grad = 0.0
    ragged.scores[high - low : rows.shape[0]] = 0.0
