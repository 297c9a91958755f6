"""The estimators of the seven experiments."""

from functools import partial

from rftlab.shared.cards.card import Card
from rftlab.shared.config.advantage import Advantage
from rftlab.shared.config.aggregation import Aggregation
from rftlab.shared.config.kl import KL
from rftlab.shared.config.surrogate import Clip, Reinforce
from rftlab.shared.estimator import Estimator

PAPER_KL = KL("k3", 0.001)
ZSCORE = Advantage("group_mean", "group_std")
GRPO_BIAS = (
    "Biased for the pass rate: W_K(p) grows like 1/√(pq), up to (K-1)/√K: GRPO climbs 2 arcsin √p as K "
    "grows; W is constant in p for K = 2 and 3 alone."
)

_card = partial(Card, family="The paper's seven experiments")

CARDS = (
    _card(
        name="minimalist",
        title="Minimalist baseline",
        source="arXiv 2601.22532",
        estimator=Estimator(Advantage("none"), Clip(), PAPER_KL),
        rollouts=1,
        formula="A = r;  j = min(ρ A, clip(ρ, 1-ε, 1+ε) A) - β k3",
        bias=(
            "Unbiased on-policy, W = 1. Without a baseline the variance of a context is p q³ with one logit, "
            "least where pass rates are low."
        ),
        checks=("T1", "T9", "T13", "T24", "T32"),
        note="One rollout per query, raw 0/1 reward: wrong answers contribute nothing, and the clip is a cap.",
    ),
    _card(
        name="grpo",
        title="GRPO",
        source="arXiv 2402.03300, eq. 3",
        estimator=Estimator(ZSCORE, Clip(), KL("k3", 0.04), Aggregation("seq_mean_token_mean")),
        formula="A = (r - mean) / (std + eps);  J = mean_i (1/|o_i|) Σ_t [min(ρ A, clip(ρ, 1-ε, 1+ε) A) - β k3]",
        bias=GRPO_BIAS + " With shared parameters the mean step can point downhill.",
        checks=("T3", "T4", "T5", "T7", "T31", "T32", "D3"),
        mirrors="verl (ddof, eps, group of one)",
        note=(
            "The KL coefficient is the paper's; it leaves deviation, eps and clip range open: sample "
            "deviation, eps 1e-6, 0.2 as in verl."
        ),
    ),
    _card(
        name="dr_grpo",
        title="Dr. GRPO",
        source="arXiv 2503.20783",
        estimator=Estimator(
            Advantage("group_mean"), Clip(), aggregation=Aggregation("seq_mean_token_sum", length=1024)
        ),
        formula="A = r - mean;  J = mean_i (1/L) Σ_t min(ρ A, clip(ρ, 1-ε, 1+ε) A), L constant",
        bias=(
            "Unbiased up to the factor W = (K-1)/K, as the mean holds the response itself; K/(K-1) times it "
            "is RLOO, with RLOO's variance."
        ),
        checks=("T2", "T12", "T22", "T31", "T32"),
        note="No division by the deviation, none by the response's own length; Adam does not see the constants.",
    ),
    _card(
        name="rloo",
        title="RLOO",
        source="arXiv 2402.14740",
        estimator=Estimator(Advantage("leave_one_out"), Reinforce()),
        formula="A_i = r_i - mean of the other K-1 rewards;  j = A log π",
        bias=(
            "Unbiased, W = 1. The variance has a part that falls like 1/K and one of pairs that falls like "
            "1/K²; it grows with nuisance scores as K/(K-1)."
        ),
        checks=("T1", "T12", "T13", "T14"),
        note="Each reward against the mean of the others. The paper also puts a KL penalty in the reward (kl.place).",
    ),
    _card(
        name="paper_text",
        title="The paper's GRPO, as its text says",
        source="arXiv 2601.22532",
        estimator=Estimator(ZSCORE, Clip(), PAPER_KL),
        formula="A = (r - mean) / (std + eps);  J = mean_i Σ_t [min(ρ A, clip(ρ, 1-ε, 1+ε) A) - β k3]",
        bias=GRPO_BIAS,
        checks=("T3", "T4", "T5", "T16", "T32"),
        note="Token sums, no dual clip.",
    ),
    _card(
        name="paper_code",
        title="The paper's GRPO, as its scripts run it",
        source="arXiv 2601.22532, github.com/tt725/Bandit-Reinforcement-Fine-tuning, on verl 0.7.0.dev",
        estimator=Estimator(ZSCORE, Clip(dual=3.0), PAPER_KL, Aggregation("micro_batch_token_mean", micro_batch=4)),
        formula=(
            "A = (r - mean) / (std + eps);  J = mean over micro-batches of 4 responses of "
            "(1/T_m) Σ_it [max(min(ρ A, clip(ρ) A), 3A where A < 0) - β k3]"
        ),
        bias=GRPO_BIAS + " Token means weigh responses by their length against the three beside them.",
        checks=("T3", "T4", "T5", "T16", "T31"),
        mirrors="verl 0.7.0.dev, the paper's fork",
        note=(
            "verl's defaults: dual clip 3, and a token mean inside each backward pass of 4 responses, averaged "
            "over passes. Its AdamW has weight decay 0.01 (`--optimizer.weight-decay 0.01` of the trainer). "
            "Experiment 2 adds support rollouts, 6 and 7 a replay window; the estimator stays."
        ),
    ),
)
