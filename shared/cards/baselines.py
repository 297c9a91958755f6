"""Policy gradients whose baseline comes from elsewhere than the responses of this round."""

from functools import partial

from rftlab.shared.cards.card import Card
from rftlab.shared.config.advantage import Advantage
from rftlab.shared.config.aggregation import Aggregation
from rftlab.shared.config.surrogate import Clip, Reinforce
from rftlab.shared.estimator import Estimator

_card = partial(Card, family="Baselines from elsewhere", rollouts=1)
TOKEN_MEAN = Aggregation("token_mean")

CARDS = (
    _card(
        name="reinforce",
        title="REINFORCE",
        source="Williams 1992",
        estimator=Estimator(Advantage("none"), Reinforce()),
        formula="A = r;  j = A log π",
        bias=(
            "Unbiased, W = 1. Variance p q³ with one logit: at equal K RLOO has less only below a pass rate "
            "that is at most 2/3."
        ),
        checks=("T1", "T12", "T13"),
        note="The raw reward is the baseline-free reference of every comparison.",
    ),
    _card(
        name="remax",
        title="ReMax",
        source="arXiv 2310.10505",
        estimator=Estimator(Advantage("greedy"), Reinforce()),
        formula="A = r - r(greedy response);  j = A log π",
        bias=(
            "Unbiased, W = 1. Where the reward alone decides the score the variance is never below "
            "REINFORCE's: (p/q)² times it above p = 1/2."
        ),
        checks=("T1", "T11"),
        note="One greedy response per context and round. The paper's KL penalty in the reward is a knob (kl.place).",
    ),
    _card(
        name="ppo",
        title="PPO with a critic",
        source="arXiv 1707.06347 (GAE: 1506.02438)",
        estimator=Estimator(Advantage("value"), Clip(), aggregation=TOKEN_MEAN),
        formula="A_t = Σ_u (γλ)^(u-t) (r_u + γ V_(u+1) - V_u);  j = min(ρ A, clip(ρ, 1-ε, 1+ε) A)",
        bias=(
            "Unbiased on-policy at γ = λ = 1, whatever the critic says. Even a perfect value raises the "
            "variance where pass rates are high."
        ),
        checks=("T1", "T10", "T11", "T32"),
        mirrors="verl and OpenRLHF (γ = λ = 1)",
        note=(
            "With one reward at the end and γ = λ = 1, A = r - V_t. The paper's continuous-control runs have "
            "γ = 0.99, λ = 0.95. Whitened: ppo_verl."
        ),
    ),
    _card(
        name="moving_average",
        title="REINFORCE with a moving average of the context",
        source="Williams 1992 (reinforcement baseline)",
        estimator=Estimator(Advantage("moving_average"), Reinforce()),
        formula="A = r - b;  b = Σ_v decay^v (rewards of v visits ago) / Σ_v decay^v (their number)",
        bias=(
            "Unbiased, W = 1: b is read before this visit's rewards enter. Its variance is (b-b*)² E|s|² "
            "above the least; b lags where pass rates drift."
        ),
        checks=("T1", "T10", "T17"),
        note="A context that was never seen takes the average of all contexts, and 0 before any reward.",
    ),
    _card(
        name="replay",
        title="Group mean over a replay window",
        source="arXiv 2601.22532",
        estimator=Estimator(Advantage("group_mean"), Clip()),
        replay_window=8,
        formula="A = r - mean of the context's last 8 rewards, this one included",
        bias=(
            "With w old rewards and one new W = w/(w+1), however stale they are. A window that lags behind "
            "the drift only costs variance."
        ),
        checks=("T16", "T17", "D2"),
        note="The paper's replay without the division by the deviation, whose stale spread is a stale learning rate.",
    ),
    _card(
        name="spo",
        title="SPO, single-stream policy optimization",
        source="arXiv 2509.13232",
        estimator=Estimator(
            Advantage("moving_average", whiten="responses", eps=1e-8, decay=0.875),
            Clip(0.2, 0.28),
            aggregation=TOKEN_MEAN,
        ),
        formula="A = whitened over the batch (r - v);  v = α/(α+β), α <- d α + r, β <- d β + 1 - r",
        bias=(
            "The baseline is unbiased. Whitening takes off the batch's mean, a factor 1-1/N, and divides by "
            "one deviation for all contexts: a learning rate."
        ),
        checks=("T2", "T6", "T10"),
        mirrors="verl-recipe (decay 0.875, eps 1e-8, clip 0.2 and 0.28)",
        note=(
            "Left out: a decay up to 0.96 where the policy moved little, α and β from 8 offline rollouts, "
            "contexts drawn by uncertainty."
        ),
    ),
    _card(
        name="optimal_baseline",
        title="REINFORCE with the optimal baseline",
        source="Greensmith, Bartlett and Baxter 2004",
        estimator=Estimator(Advantage("optimal"), Reinforce()),
        formula="A = r - b*;  b* = E[r |s|²] / E[|s|²]",
        bias=(
            "Unbiased, W = 1, with the least variance that one number per context can give; any other "
            "baseline costs (b-b*)² E|s|² more."
        ),
        checks=("T10",),
        note=(
            "Computable in the simulator alone. For real models there is its estimate from the group, "
            "optimal_token_baseline."
        ),
    ),
    _card(
        name="optimal_token_baseline",
        title="OTB, optimal token baseline",
        source="Greensmith, Bartlett and Baxter 2004; verl 0.9.1",
        rollouts=8,
        estimator=Estimator(Advantage("optimal_token"), Reinforce(), aggregation=TOKEN_MEAN),
        formula=(
            "A_t = r - b_t;  b_t = Σ_i r_i W_it / Σ_i W_it over a group, W_it = Σ_(u <= t) (1 - 2 π(a_u) + Σ_v π(v)²)"
        ),
        bias=(
            "Biased: a response's own reward is in its baseline, as in GRPO's mean, but with a weight of its own, so "
            "that the direction bends too. Of three answers with chances 0.05 (right), 0.9 and 0.05 a group of 4 has "
            "0.22, 0.28 and -0.97 times the gradient."
        ),
        checks=("T10",),
        mirrors="verl (adv_estimator optimal_token_baseline, without importance weights; its 1e-8 is left out)",
        note=(
            "Σ_v π(v)² is read off the old policy, in the pass that finds its log-probabilities. In the simulator an "
            "answer is one token. A loop of its own takes `rftlab.shared.credit.optimal_token_baseline`."
        ),
    ),
)
