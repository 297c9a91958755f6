"""Estimators that train on right responses alone, on wrong ones alone, or weigh the two differently."""

from functools import partial

from rftlab.shared.cards.card import Card
from rftlab.shared.config.advantage import Advantage
from rftlab.shared.config.aggregation import Aggregation
from rftlab.shared.config.ratio import Ratio
from rftlab.shared.config.surrogate import Clip, Reinforce, Topr
from rftlab.shared.estimator import Estimator

_card = partial(Card, family="Right and wrong responses", rollouts=1)
TOKEN_MEAN = Aggregation("token_mean")
UNBIASED = "Unbiased on-policy, W = 1: a constant is a baseline. "

CARDS = (
    _card(
        name="positive_only",
        title="Positive sample reinforcement",
        source="arXiv 2506.01347",
        estimator=Estimator(Advantage("none"), Clip(), aggregation=TOKEN_MEAN),
        formula="A = 1 for a right response, 0 for a wrong one",
        bias="Unbiased on-policy, W = 1: with 0/1 rewards it is the raw reward. Least variance at low pass rates.",
        checks=("T1", "T9"),
        note="The paper finds that it lowers Pass@k for large k. The clip is verl's default, where the paper trains.",
    ),
    _card(
        name="negative_only",
        title="Negative sample reinforcement",
        source="arXiv 2506.01347",
        estimator=Estimator(Advantage("constant", constant=1.0), Clip(), aggregation=TOKEN_MEAN),
        formula="A = 0 for a right response, -1 for a wrong one",
        bias=UNBIASED + "Its variance is least at high pass rates.",
        checks=("T1", "T10"),
        note=(
            "The paper finds that it keeps Pass@k over the whole range of k. Here both are the same mean gradient "
            "on-policy; they differ in noise, and in what several updates do."
        ),
    ),
    _card(
        name="weighted_reinforce",
        title="W-REINFORCE",
        source="arXiv 2506.01347",
        estimator=Estimator(Advantage("constant", constant=10 / 11), Clip(), aggregation=TOKEN_MEAN),
        formula="A = 0.1 for a right response, -1 for a wrong one, both over 1.1",
        bias=UNBIASED + "The paper's weights are 1.1 times these, which is a learning rate.",
        checks=("T1", "T10"),
        note="0.1 is the paper's weight of right responses.",
    ),
    _card(
        name="raft",
        title="RAFT, rejection sampling",
        source="arXiv 2304.06767, 2504.11343",
        estimator=Estimator(Advantage("none", "nonzero"), Reinforce(), aggregation=Aggregation("seq_mean_token_mean")),
        rollouts=8,
        formula="J = mean over the right responses of their mean log π",
        bias=(
            "The direction of the raw reward (T1), divided by the share of right responses in the batch: a learning "
            "rate that is large while few are right."
        ),
        checks=("T1", "T31"),
        note=(
            "Supervised fine-tuning on right samples of the policy itself. 2304.06767 keeps the best response of a "
            "prompt; here every right one counts, as in 2504.11343."
        ),
    ),
    _card(
        name="raft_pp",
        title="RAFT++",
        source="arXiv 2504.11343",
        estimator=Estimator(Advantage("none", "nonzero"), Clip(), aggregation=Aggregation("seq_mean_token_mean")),
        rollouts=8,
        formula="J = mean over the right responses of mean_t min(ρ, 1+ε)",
        bias="As raft on-policy (T1). Off-policy the clip is a cap on what was right (T9).",
        checks=("T1", "T9", "T31"),
        note="RAFT with the ratio and the clip of PPO.",
    ),
    _card(
        name="topr",
        title="TOPR, tapered off-policy REINFORCE",
        source="arXiv 2503.14286",
        estimator=Estimator(Advantage("constant", constant=0.5), Topr(), ratio=Ratio("product")),
        formula="j = A log π where A >= 0, else min(w, 1) held fixed · A log π;  w = Π_t ρ_t",
        bias=UNBIASED + "Off-policy right responses have no importance weight and wrong ones a truncated one: biased, "
        "and bounded without a KL penalty.",
        checks=("T1", "T18", "T33"),
        mirrors="ROLL (`pg_variant: topr`) with ratios of tokens in place of their product",
        note="Rewards are 1 and -1 in the paper, here half of that. Its baseline, a constant, weighs right and wrong.",
    ),
)
