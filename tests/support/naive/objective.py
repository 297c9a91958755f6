"""Slow, obvious twins, second part: the objective of a batch, from ratios, surrogates, masks, corrections, penalties
and aggregation."""

import cmath
import math
from collections.abc import Callable, Sequence
from itertools import chain, pairwise

from rftlab import KL, Aggregation, Correction, Estimator, Length, Ratio
from rftlab.shared.config.mask import ClipCov, Divergence, Drift, KLCov, SecondMoment, TopEntropy
from rftlab.shared.config.surrogate import Cispo, Clip, Dro, GeometricMean, Reinforce, Sapo, Surrogate, Topr
from tests.support.naive.estimators import derivative, per_token, rows_of


def held(x, low: float, high: float):
    """x held within low .. high; constant, so without derivative, outside."""
    if x.real > high:
        return high
    return low if x.real < low else x


def fixed(x) -> float:
    """The value of x without its derivative."""
    return x.real


# --- ratios and surrogates ---


def log_ratios(level: str, row: Sequence) -> list:
    """Log-ratio that each token of a response sees, from those of the tokens."""
    if level == "token":
        return list(row)
    if level == "product":
        return [sum(held(x, -20.0, 20.0) for x in row)] * len(row)
    mean = sum(row) / len(row) if row else 0.0
    return [mean] * len(row) if level == "sequence" else [fixed(mean) + x - fixed(x) for x in row]


def ratio(spec: Ratio, log_ratio):
    return cmath.exp(held(log_ratio, spec.floor, spec.cap))


def surrogate(spec: Surrogate, ratio_spec: Ratio, advantage: float, logp, log_ratio):
    """Objective of one token, whether it is clipped, and whether the dual clip holds it."""
    if isinstance(spec, Reinforce):
        return advantage * logp, False, False
    if isinstance(spec, Dro):
        return advantage * logp - spec.beta / 2 * log_ratio**2, False, False
    r = ratio(ratio_spec, log_ratio)
    if isinstance(spec, Clip):
        return clip(spec, advantage, r)
    if isinstance(spec, Cispo):
        weight = held(fixed(r), 1 - spec.low, 1 + spec.high)
        return weight * advantage * logp, weight != fixed(r), False
    if isinstance(spec, Topr):
        weight = 1.0 if advantage >= 0 else min(1.0, fixed(r))
        return weight * advantage * logp, advantage < 0 and fixed(r) > 1, False
    if isinstance(spec, Sapo):
        tau = spec.tau_positive if advantage > 0 else spec.tau_negative
        return advantage * 4 / tau / (1 + cmath.exp(-tau * (r - 1))), False, False
    k, lam = (spec.k_positive, spec.lam_positive) if advantage >= 0 else (spec.k_negative, spec.lam_negative)
    phi = math.exp(lam - lam * fixed(r)) * fixed(r) ** k
    return phi * advantage * logp, False, False


def clip(spec: Clip, advantage: float, r):
    """PPO's clip, and the dual clip."""
    is_clipped = (advantage > 0 and r.real > 1 + spec.high) or (advantage < 0 and r.real < 1 - spec.low)
    if is_clipped:
        r = 1 + spec.high if advantage > 0 else 1 - spec.low
    is_dual = advantage < 0 and r.real > spec.dual
    if is_dual:
        r = spec.dual
    return advantage * r, is_clipped, is_dual


def geometric(spec: GeometricMean, eps: float, advantages: Sequence[float], row: Sequence):
    """Objective of each token of a response: its advantage times the geometric mean of clipped ratios; tokens
    clipped from above, from below."""
    total, high, low = 0.0, 0, 0
    for advantage, x in zip(advantages, row, strict=True):
        is_high, is_low = advantage > 0 and x.real > spec.high, advantage < 0 and x.real < -spec.low
        total += spec.high if is_high else -spec.low if is_low else x if advantage else 0.0
        high += advantage > 0 and not -spec.low <= x.real <= spec.high
        low += advantage < 0 and not -spec.low <= x.real <= spec.high
    mean = cmath.exp(total / (len(row) + eps)) if row else 1.0
    return [advantage * mean for advantage in advantages], high, low


# --- penalties ---


def kl(spec: KL, logp, ref_logp: float):
    """Estimate of the KL divergence from one token."""
    d = logp - ref_logp
    limit, value_limit = (20.0, 10.0) if spec.bounded else (math.inf, math.inf)
    if spec.kind == "k1":
        return d
    if spec.kind == "k2":
        return d * d / 2
    if spec.kind == "k3":
        u = held(-d, -limit, limit)
        return held(cmath.exp(u) - u - 1, -value_limit, value_limit)
    if spec.kind == "abs":
        return d if d.real > 0 else -d if d.real < 0 else 0.0 * d
    return 0.0 * d


def penalty(spec: KL, logp, ref_logp: float):
    """The KL penalty of one token; straight_through has the value of its kind and the derivative of k2."""
    if not spec.straight_through or spec.kind == "none":
        return kl(spec, logp, ref_logp)
    k2 = (logp - ref_logp) ** 2 / 2
    return kl(spec, complex(fixed(logp)), ref_logp) + k2 - fixed(k2)


def shaped_rewards(spec: KL, length: Length, rewards, starts, old_logp, ref_logp) -> list[float]:
    """Rewards minus the length penalty and the sampled KL penalty of each response."""
    coef = spec.coef if spec.place == "reward" else 0.0
    penalties = [fixed(kl(spec, complex(old), ref)) for old, ref in zip(old_logp, ref_logp, strict=True)]
    out = []
    for reward, row in zip(rewards, rows_of(penalties, starts), strict=True):
        over = min(1.0, max(0.0, (len(row) - (length.limit - length.buffer)) / length.buffer))
        out.append(float(reward) - length.coef * over - coef * sum(row))
    return out


# --- corrections and masks ---


def corrections(spec: Correction, starts, old_logp, sampler_logp) -> list[float]:
    """Importance weight of each token."""
    out = []
    for row in rows_of([old - sampler for old, sampler in zip(old_logp, sampler_logp, strict=True)], starts):
        whole = sum(row) / len(row) if spec.level == "geometric" and row else sum(row)
        for x in row:
            weight = math.exp(held(x if spec.level == "token" else whole, -20.0, 20.0))
            if spec.kind == "truncate":
                weight = min(weight, spec.high)
            elif spec.kind == "mask":
                weight = weight if spec.low <= weight <= spec.high else 0.0
            else:
                weight = 1.0
            out.append(weight)
    return out


def binary_kl(q: float, p: float) -> float:
    """Divergence of the two-outcome distribution (q, 1-q) from (p, 1-p), 1e-8 in the logarithm of the second
    outcome."""
    return q * math.log(q / p) + (1 - q) * math.log((1 - q + 1e-8) / (1 - p + 1e-8))


def stays(spec: Divergence, advantage: float, logp: float, old_logp: float) -> bool:
    p, q = math.exp(logp), math.exp(old_logp)
    rises, threshold = (p > q, spec.high) if advantage > 0 else (p < q, spec.low)
    return not (rises and (abs(p - q) if spec.measure == "tv" else binary_kl(q, p)) > threshold)


def covariances(advantages, logp, eps: float = 0.0) -> list[float]:
    n = len(logp)
    centre = sum(advantages) / (n + eps), sum(logp) / (n + eps)
    return [(a - centre[0]) * (x - centre[1]) for a, x in zip(advantages, logp, strict=True)]


def masks(estimator: Estimator, advantages, starts, old_logp, logp, keys) -> tuple[list[bool], list[bool]]:
    """Which tokens keep their surrogate, and which keep their penalty."""
    spec, n = estimator.mask, len(logp)
    everyone = [True] * n
    if isinstance(spec, Divergence):
        return [stays(spec, *token) for token in zip(advantages, logp, old_logp, strict=True)], everyone
    if isinstance(spec, Drift):
        fallen = rows_of([old - x for old, x in zip(old_logp, logp, strict=True)], starts)
        over = [sum(row) > spec.threshold * len(row) for row in fallen]
        pairs = zip(advantages, per_token(over, starts), strict=True)
        return [not (advantage < 0 and far) for advantage, far in pairs], everyone
    if isinstance(spec, TopEntropy):
        ordered, place = sorted(keys), (1.0 - spec.fraction) * (n - 1)
        below, above = (ordered[round_(place)] if n else 0.0 for round_ in (math.floor, math.ceil))
        least = below + (above - below) * (place - math.floor(place))
        return [key >= least for key in keys], everyone
    if isinstance(spec, SecondMoment):
        move = [x - o for x, o in zip(logp, old_logp, strict=True)]
        kept = [t for t in range(n) if advantages[t] * move[t] > 0]
        while kept and sum(move[t] ** 2 for t in sorted(kept, key=lambda t: abs(move[t]))) > spec.threshold * len(kept):
            kept.remove(max(kept, key=lambda t: (abs(move[t]), t)))
        return [advantages[t] * move[t] <= 0 or t in kept for t in range(n)], everyone
    count = max(1, int(getattr(spec, "fraction", 1.0) * n))
    if isinstance(spec, ClipCov):
        tokens = zip(advantages, logp, old_logp, strict=True)
        clipped = [surrogate(estimator.surrogate, estimator.ratio, a, x, x - old)[1] for a, x, old in tokens]
        value = covariances(advantages, logp, 1e-8)
        inside = [t for t in range(n) if spec.low < value[t] < spec.high and not clipped[t]]
        drawn = sorted(inside, key=lambda t: keys[t])[:count]
        return [t not in drawn for t in range(n)], everyone
    if isinstance(spec, KLCov):
        value = covariances(advantages, logp)
        largest = sorted(range(n), key=lambda t: -value[t])[:count]
        return everyone, [t in largest for t in range(n)]
    return everyone, everyone


# --- the batch ---


def aggregate(spec: Aggregation, rows: Sequence[Sequence], n_tokens=None, n_rows=None, group=None):
    """Objective of a batch from the objectives of its tokens, one list per response."""
    length = 1.0 if spec.length is None else spec.length
    if spec.kind == "prompt_mean":
        prompts: dict[int, list] = {}
        for label, row in zip(group, rows, strict=True):
            prompts.setdefault(label, []).extend(row)
        counted = n_rows or sum(1 for part in prompts.values() if part or spec.empty == "count")
        return sum(sum(part) / (len(part) + spec.eps) for part in prompts.values() if part) / counted
    if n_tokens is None:
        n_tokens = sum(len(row) for row in rows)
    if n_rows is None:
        n_rows = sum(1 for row in rows if row or spec.empty == "count" or spec.micro_batch)
    if spec.kind == "micro_batch_token_mean":
        parts = [list(chain(*rows[i : i + spec.micro_batch])) for i in range(0, len(rows), spec.micro_batch)]
        return sum(sum(part) / (len(part) + spec.eps) for part in parts if part) / math.ceil(n_rows / spec.micro_batch)
    if spec.kind == "token_mean":
        return sum(sum(row) for row in rows) / (n_tokens + spec.eps)
    if spec.kind == "token_sum":
        return sum(sum(row) for row in rows) / length
    if spec.kind == "seq_mean_token_sum":
        return sum(sum(row) / length for row in rows) / n_rows
    return sum(sum(row) / (len(row) + spec.eps) for row in rows if row) / n_rows


def response(estimator: Estimator, advantages, old_logp, logp):
    """Surrogates and penalty weights of the tokens of one response, clipped tokens, dual-clipped tokens."""
    row = [x - old for x, old in zip(logp, old_logp, strict=True)]
    seen = log_ratios(estimator.ratio.level, row)
    weight = [ratio(estimator.ratio, x) for x in seen] if estimator.kl.weighted else [1.0] * len(row)
    if isinstance(estimator.surrogate, GeometricMean):
        values, clipped, dual = geometric(estimator.surrogate, estimator.aggregation.eps, advantages, row)
        return values, weight, clipped, dual
    tokens = zip(advantages, logp, seen, strict=True)
    found = [surrogate(estimator.surrogate, estimator.ratio, *token) for token in tokens]
    values, clipped, dual = zip(*found, strict=True) if found else ((), (), ())
    return values, weight, sum(clipped), sum(dual)


def objective(estimator: Estimator, advantages, starts, old_logp, ref_logp, logp, correction=None, kept=None, **counts):
    """J of a batch from advantages per token (T,), with clipped tokens, dual-clipped tokens and the sum of the KL
    values."""
    coef, n = estimator.kl.coef if estimator.kl.place == "loss" else 0.0, len(logp)
    correction = [1.0] * n if correction is None else correction
    on_penalty = correction if isinstance(estimator.mask, KLCov) else [1.0] * n
    in_surrogate, in_penalty = ([True] * n, [True] * n) if kept is None else kept
    values, clipped, dual_clipped, kl_total = [], 0, 0, 0.0
    for a, b in pairwise(starts):
        surrogates, weight, high, low = response(estimator, advantages[a:b], old_logp[a:b], logp[a:b])
        columns = zip(logp[a:b], ref_logp[a:b], weight, strict=True)
        penalties = [penalty(estimator.kl, complex(x), ref) * w for x, ref, w in columns]
        row = []
        for t, value, penalised in zip(range(a, b), surrogates, penalties, strict=True):
            gain = correction[t] * value if in_surrogate[t] else 0.0
            row.append(gain - (coef * on_penalty[t] * penalised if in_penalty[t] else 0.0))
        values.append(row)
        clipped, dual_clipped = clipped + high, dual_clipped + low
        kl_total += sum(fixed(value) for value in penalties)
    return aggregate(estimator.aggregation, values, **counts), clipped, dual_clipped, kl_total


def slopes(estimator: Estimator, advantages, starts, logp, **rest) -> list[float]:
    """dJ/dlogp of the tokens of a few responses, a complex step each."""
    row = [complex(x) for x in logp]

    def along(t: int) -> Callable[[complex], complex]:
        return lambda x: objective(estimator, advantages, starts, logp=[*row[:t], x, *row[t + 1 :]], **rest)[0]

    return [derivative(along(t), token.real) for t, token in enumerate(row)]


def weights(
    estimator: Estimator, advantages, starts, old_logp, ref_logp, logp, correction=None, kept=None, **counts
) -> list[float]:
    """dJ/dlogp of every token; a token moves its own response alone, or its micro-batch."""
    lengths = [b - a for a, b in pairwise(starts)]
    counted, step = estimator.aggregation.empty == "count", estimator.aggregation.micro_batch
    n_rows = sum(1 for length in lengths if length or counted or step)
    counts, out = {"n_tokens": sum(lengths), "n_rows": n_rows} | counts, []
    for low in range(0, len(lengths), step or 1):
        rows = list(starts[low : low + (step or 1) + 1])
        a, b = rows[0], rows[-1]
        part = {"old_logp": old_logp[a:b], "ref_logp": ref_logp[a:b]} | counts
        part["correction"] = None if correction is None else correction[a:b]
        part["kept"] = None if kept is None else [flags[a:b] for flags in kept]
        out += slopes(estimator, advantages[a:b], [row - a for row in rows], logp[a:b], **part)
    return out
