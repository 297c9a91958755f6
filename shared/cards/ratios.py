"""Surrogates: how far the policy may move from the one that sampled, and what a token that moved too far still
teaches."""

import math
from functools import partial

from rftlab.shared.cards.card import Card
from rftlab.shared.cards.paper import ZSCORE
from rftlab.shared.config.advantage import Advantage
from rftlab.shared.config.aggregation import Aggregation
from rftlab.shared.config.kl import KL
from rftlab.shared.config.ratio import Ratio
from rftlab.shared.config.surrogate import Cispo, Clip, Dro, GeometricMean, Sapo, Vespo
from rftlab.shared.estimator import Estimator

_card = partial(Card, family="Ratios and clips")
TOKEN_MEAN, SEQUENCE_MEAN = Aggregation("token_mean"), Aggregation("seq_mean_token_mean")
ON_POLICY = "On-policy it is GRPO's estimator (T3). "

CARDS = (
    _card(
        name="gspo",
        title="GSPO, group sequence policy optimization",
        source="arXiv 2507.18071",
        estimator=Estimator(ZSCORE, Clip(3e-4, 4e-4), aggregation=SEQUENCE_MEAN, ratio=Ratio("sequence")),
        formula="s_i = exp(mean_t log ρ_t);  J = mean_i min(s_i A, clip(s_i, 1-ε, 1+ε) A)",
        bias=ON_POLICY
        + "Off-policy the geometric mean of ratios is not the response's importance weight: less variance than "
        "the product, biased.",
        checks=("T3", "T18", "T33"),
        note="The clip ranges are the paper's: one ratio per response hardly moves. No KL.",
    ),
    _card(
        name="gspo_token",
        title="GSPO-token",
        source="arXiv 2507.18071, eq. 13 to 15",
        estimator=Estimator(ZSCORE, Clip(3e-4, 4e-4), aggregation=SEQUENCE_MEAN, ratio=Ratio("sequence_token")),
        formula=(
            "s_it = s_i held fixed times ρ_t over itself held fixed;  J = mean_i mean_t min(s_it A_t, "
            "clip(s_it, 1-ε, 1+ε) A_t)"
        ),
        bias=ON_POLICY + "Differs from GSPO only where advantages vary within a response.",
        checks=("T3", "T18", "T33"),
        alias="gspo",
        note="Every token has the response's ratio, differentiated through its own log-probability alone.",
    ),
    _card(
        name="luspo",
        title="LUSPO, length-unbiased GSPO",
        source="arXiv 2602.05261",
        estimator=Estimator(ZSCORE, Clip(2e-3, 2.5e-3), ratio=Ratio("sequence")),
        formula="J = mean_i |o_i| min(s_i A, clip(s_i, 1-ε, 1+ε) A)",
        bias=ON_POLICY
        + "GSPO's term of a response times its length: on-policy the sum over tokens of A log π, without the "
        "division by |o|.",
        checks=("T3", "T18"),
        mirrors="TRL 1.x",
        note="Clip ranges as in TRL's recipe for the paper.",
    ),
    _card(
        name="gmpo",
        title="GMPO, geometric-mean policy optimization",
        source="arXiv 2507.20673",
        estimator=Estimator(ZSCORE, GeometricMean(0.4, 0.4), aggregation=SEQUENCE_MEAN),
        formula="J = mean_i A exp(mean_t x_t), x_t = log ρ_t clipped to -0.4 .. 0.4 on the side that A allows",
        bias=ON_POLICY
        + "Clipped before the mean, where GSPO clips after it: one wild token loses its gradient, not the "
        "whole response.",
        checks=("T3", "T18", "T33"),
        note="Ratios from e^-0.4 to e^0.4, as in the paper. No KL.",
    ),
    _card(
        name="cispo",
        title="CISPO",
        source="arXiv 2506.13585",
        estimator=Estimator(ZSCORE, Cispo(1.0, 4.0), aggregation=TOKEN_MEAN),
        formula="j = min(ρ, 5) held fixed · A log π",
        bias=ON_POLICY
        + "Off-policy an importance weight per token, truncated at 5: no token is dropped; what lies above the "
        "cap is a bias.",
        checks=("T3", "T18"),
        mirrors="TRL 1.x (cap 5, from 2510.13786)",
        note=(
            "The paper tunes the upper bound and prints none; it has no lower bound. With an infinite cap it "
            "is REINFORCE with importance weights."
        ),
    ),
    _card(
        name="scale_rl",
        title="ScaleRL",
        source="arXiv 2510.13786",
        estimator=Estimator(
            Advantage("group_mean", "batch_std"), Cispo(1.0, 4.0), aggregation=Aggregation("prompt_mean")
        ),
        formula=(
            "A = (r - mean) / (batch std + eps);  J = mean over prompts of the mean over their tokens of min(ρ, 5) "
            "held fixed · A log π"
        ),
        bias=(
            "One deviation for the batch: a learning rate (T6). The mean over a prompt's tokens weighs its responses "
            "by length (T31). Off-policy as cispo."
        ),
        checks=("T6", "T18", "T31"),
        mirrors="SkyRL a956457 (`prompt_mean`; cap 5, no lower bound)",
        note=(
            "Left out: zero-variance groups leave the batch there, and prompts that are always right leave the data. "
            "Its other parts are the sampler's and the head's precision."
        ),
    ),
    _card(
        name="sapo",
        title="SAPO, soft adaptive policy optimization",
        source="arXiv 2511.20347",
        estimator=Estimator(ZSCORE, Sapo(1.0, 1.05), aggregation=SEQUENCE_MEAN),
        formula="j = A (4/τ) sigmoid(τ (ρ - 1)), τ = 1.0 where A > 0, else 1.05",
        bias=ON_POLICY
        + "Off-policy a gate that fades in both directions, faster for A < 0, in place of a clip: biased "
        "wherever ρ differs from 1.",
        checks=("T3", "T18"),
        mirrors="verl 0.9.1 and TRL 1.x",
        note="Both temperatures are the paper's and the libraries' defaults.",
    ),
    _card(
        name="vespo",
        title="VESPO",
        source="arXiv 2602.10693",
        estimator=Estimator(
            Advantage("group_mean", "group_std", eps=1e-4),
            Vespo(),
            aggregation=TOKEN_MEAN,
            ratio=Ratio("product", floor=math.log(1e-8)),
        ),
        formula="j = φ(w) held fixed · A log π;  w = Π_t ρ_t,  φ = w^k exp(λ (1 - w))",
        bias=ON_POLICY
        + "φ(1) = 1. Off-policy the response's weight is bent towards w = k/λ, which bounds the variance and biases.",
        checks=("T3", "T18", "T33"),
        mirrors="TRL 1.16 (k 2 and 3, λ 3 and 2, eps 1e-4, log w from log 1e-8 to 20)",
        note="k and λ differ by the sign of A.",
    ),
    _card(
        name="dro",
        title="DRO, direct reward optimisation",
        source="arXiv 2405.19107",
        estimator=Estimator(Advantage("group_mean"), Dro(0.1)),
        formula="j = A log π - (β/2) (log ρ)²",
        bias=(
            "On-policy it is Dr. GRPO's estimator: W = (K-1)/K. Off-policy it has no importance weight; the "
            "square pulls back with the gradient of k2."
        ),
        checks=("T2", "T18", "T23"),
        mirrors="verl 0.9.1 (per token)",
        note=(
            "Left out: the paper squares the log-ratio of the whole response and learns a value; here per "
            "token, against the group's mean. β is ours."
        ),
    ),
    _card(
        name="two_sided",
        title="Two-sided clip (INTELLECT-2)",
        source="arXiv 2505.07291",
        estimator=Estimator(ZSCORE, Clip(dual=4.0), KL("k3", 0.001), TOKEN_MEAN),
        formula="j = min(min(ρ, δ) A, clip(ρ, 1-ε, 1+ε) A), δ = 4",
        bias=ON_POLICY + "Where A < 0 the objective stops at δ A, so a token whose ratio exploded no longer pushes.",
        checks=("T3", "T18", "T32"),
        mirrors="TRL 1.x (`delta`)",
        note="For δ > 1+ε it is the dual clip of arXiv 1912.09729. The mean over tokens is TRL's.",
    ),
)
