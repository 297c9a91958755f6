"""The estimators of the seven experiments."""

from shared.advantage import Advantage
from shared.aggregation import Aggregation
from shared.estimator import Estimator
from shared.kl import KL
from shared.surrogate import Clip, Reinforce
from studies.cards.card import Card

PAPER_KL = KL("k3", 0.001)
ZSCORE = Advantage("group_mean", "group_std")

CARDS = (
    Card(
        "minimalist",
        "Minimalist baseline",
        "arXiv 2601.22532",
        Estimator(Advantage("none"), Clip(), PAPER_KL),
        "One rollout per query, raw 0/1 reward: wrong answers contribute nothing.",
    ),
    Card(
        "grpo",
        "GRPO",
        "arXiv 2402.03300, eq. 3",
        Estimator(ZSCORE, Clip(), KL("k3", 0.04), Aggregation("seq_mean_token_mean")),
        "Constants as in verl: sample deviation, eps 1e-6; a group of one keeps its raw reward.",
    ),
    Card(
        "dr_grpo",
        "Dr. GRPO",
        "arXiv 2503.20783",
        Estimator(Advantage("group_mean"), Clip(), aggregation=Aggregation("seq_mean_token_sum", length=1024)),
        "No division by the deviation, none by the response's own length.",
    ),
    Card(
        "rloo",
        "RLOO",
        "arXiv 2402.14740",
        Estimator(Advantage("leave_one_out"), Reinforce()),
        "Unbiased: each reward against the mean of the others. The paper also puts a KL penalty in the reward (kl.place).",
    ),
    Card("paper_text", "The paper's GRPO, as its text says", "arXiv 2601.22532", Estimator(ZSCORE, Clip(), PAPER_KL), "Token sums, no dual clip."),
    Card(
        "paper_code",
        "The paper's GRPO, as its scripts run it",
        "arXiv 2601.22532, on verl",
        Estimator(ZSCORE, Clip(dual=3.0), PAPER_KL, Aggregation("token_mean")),
        "verl's defaults: token mean over the batch, dual clip 3.",
    ),
)
