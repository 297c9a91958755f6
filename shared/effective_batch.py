"""Compute the effective batch, which measures how little noise a gradient has, and the split of a budget that maximises
it.

The model has random effects. The gradient of rollout j of prompt i is G + b_i + e_ij, with tr Cov b = between and tr
Cov e = within, so the mean over B prompts with K rollouts each has

    tr Cov = (between + within f / K) / B = within / B_eff,      B_eff = B / (r + f / K),      r = between / within

r and `within` are those of the raw reward, f = 1. The effect of a baseline is in f: against the mean of n rewards, its
own among them, the noise within prompts becomes phi n / (n - 1) times as large at equal signal. phi is what a perfect
baseline gains, E[pq] / E[p] where noise does not depend on what was answered, and n / (n - 1) is the price of
estimating it from n rewards. Support rollouts and replayed rewards count in n and not in K; replayed ones count as if
the pass rate had not changed. Up to a constant, B_eff is B divided by the gradient noise scale (McCandlish et al.
1812.06162).

Adam's steps have one length whatever the gradient's scale, so in noise it moves along the signal by the ratio of signal
to noise, in proportion to sqrt(B_eff) an update. Compare designs at equal

    tau = t E sqrt(m B_eff / B_ref)       t rounds of E epochs over m mini-batches, each of which has B_eff / m

Theory checks D31 to D37 show where that holds and where it does not.
"""

from math import ceil, floor, inf, sqrt
from typing import NamedTuple

from rftlab.shared.design import Design
from rftlab.shared.plumbing.errors import check, check_finite


class NoiseRatios(NamedTuple):
    """Ratios of variances that determine how the noise of a gradient depends on B, K and the baseline."""

    between: float
    """r: variance of gradients between prompts over that of a rollout within its prompt, raw reward."""
    gain: float = 1.0
    """phi: variance within prompts with a perfect baseline over that with the raw reward."""


def effective_batch(batch_size: int, rollouts: int, between: float, within: float = 1.0) -> float:
    """Return B_eff = B / (r + f / K): the number of independent responses, one to a prompt, whose gradient would have
    as little noise if prompts did not differ. between: r; within: f."""
    return batch_size / (between + within / rollouts)


def baseline_noise(rewards: float, gain: float = 1.0) -> float:
    """Return f of a baseline that is the mean of n rewards, the response's own among them: phi n / (n - 1). It is 1 for
    n = 1, where the raw reward is trained on."""
    return gain * (1 + 1 / (rewards - 1)) if rewards > 1 else 1.0


def baseline_rewards(design: Design) -> float:
    """Return n, the number of rewards behind a response's baseline, its own among them; 1 where the raw reward is
    trained on, inf where the baseline comes from elsewhere than the group. Scaling by a deviation is not considered."""
    advantage = design.estimator.advantage
    if advantage.baseline == "none":
        return 1
    size = max(design.rollouts, design.replay_window) + design.support_rollouts
    return size if advantage.of_group else inf


def design_batch(design: Design, noise: NoiseRatios) -> float:
    """Return B_eff of a round of a design."""
    within = baseline_noise(baseline_rewards(design), noise.gain)
    return effective_batch(design.batch_size, design.rollouts, noise.between, within)


def plain_batch(design: Design, noise: NoiseRatios) -> float:
    """Return B / (r + 1/K), which is B_eff as if no design had a baseline."""
    return effective_batch(design.batch_size, design.rollouts, noise.between)


REFERENCE = (32, 1)
"""B and K of the design whose rounds are the unit of tau; it trains on the raw reward."""


def time_per_round(design: Design, noise: NoiseRatios, plain: bool = False) -> float:
    """Return tau / t, the number of rounds of REFERENCE that a round of the design is worth. plain: ignore the
    baseline."""
    batch = plain_batch(design, noise) if plain else design_batch(design, noise)
    return design.epochs * sqrt(design.minibatches * batch / effective_batch(*REFERENCE, noise.between))


class Costs(NamedTuple):
    """Costs of a round in any unit; a round costs B (prompt + K rollout)."""

    prompt: float
    """Cost of a prompt: finding it, and reading it once."""
    rollout: float
    """Cost of a response: sampling it, scoring it, and training on it."""


def token_costs(prompt: float, rollout: float, token: float, prompt_tokens: float, response_tokens: float) -> Costs:
    """Return the costs of prompts and responses where every token has a cost, too. Raises UserError where a rollout is
    free."""
    for name, value in (("prompt", prompt), ("rollout", rollout), ("token", token)):
        check_finite(f"cost of a {name}", value, 0)
    costs = Costs(prompt + token * prompt_tokens, rollout + token * response_tokens)
    check(costs.rollout > 0, f"cost of a rollout = {costs.rollout:g}; allowed: more than 0")
    return costs


def best_rollouts(noise: NoiseRatios, costs: Costs, baseline: bool) -> float:
    """Return K* with the largest B_eff for a given cost, not rounded; inf where prompts do not differ.

    Raw reward: sqrt(c_prompt / (c_rollout r)), as in two-stage sampling (Cochran 1977). With a baseline from the
    group, whose noise falls as phi / (K - 1): 1 + sqrt((c_prompt / c_rollout + 1) phi / r), so 2 or more.
    """
    dear = costs.prompt / costs.rollout
    if noise.between <= 0:
        return inf if baseline or dear > 0 else 1.0
    return 1 + sqrt((dear + 1) * noise.gain / noise.between) if baseline else max(1.0, sqrt(dear / noise.between))


class BudgetSplit(NamedTuple):
    """A split of a round's budget into B prompts with K rollouts each."""

    batch_size: int
    rollouts: int
    baseline: bool
    """True where the group's other rewards are the baseline, False where the raw reward is trained on."""
    effective: float
    """B_eff of the split."""


def best_split(noise: NoiseRatios, costs: Costs, budget: float, baseline: bool) -> BudgetSplit:
    """Return the whole numbers B and K near `best_rollouts` with the largest B_eff that a round's budget allows. Raises
    UserError where the budget does not pay for one group."""
    fewest = 2 if baseline else 1
    most = floor((budget - costs.prompt) / costs.rollout + 1e-9)
    check(most >= fewest, f"budget = {budget:g}; allowed: {costs.prompt + fewest * costs.rollout:g} or more")
    ideal = min(best_rollouts(noise, costs, baseline), float(most))
    sizes = {min(max(size, fewest), most) for size in (floor(ideal), ceil(ideal))}
    return max((_split(noise, costs, budget, size, baseline) for size in sorted(sizes)), key=lambda one: one.effective)


def _split(noise: NoiseRatios, costs: Costs, budget: float, rollouts: int, baseline: bool) -> BudgetSplit:
    prompts = floor(budget / (costs.prompt + rollouts * costs.rollout) + 1e-9)
    within = baseline_noise(rollouts, noise.gain) if baseline else 1.0
    return BudgetSplit(prompts, rollouts, baseline, effective_batch(prompts, rollouts, noise.between, within))
