"""Masks, which decide at the current policy what takes part in an update, and the bonus on its entropy."""

import math
from functools import partial

from rftlab.shared.cards.card import Card
from rftlab.shared.cards.paper import ZSCORE
from rftlab.shared.config.advantage import Advantage
from rftlab.shared.config.aggregation import Aggregation
from rftlab.shared.config.kl import KL
from rftlab.shared.config.mask import ClipCov, Divergence, Drift, KLCov, SecondMoment, TopEntropy
from rftlab.shared.config.surrogate import Cispo, Clip
from rftlab.shared.estimator import Estimator

_card = partial(Card, family="Masks and entropy")
TOKEN_MEAN = Aggregation("token_mean")
CENTRED = Advantage("group_mean")
DPPO_BIAS = (
    "On-policy it is Dr. GRPO's estimator: W = (K-1)/K. Off-policy an importance weight per token, "
    "truncated at 20; the mask drops what moved too far."
)

CARDS = (
    _card(
        name="clip_cov",
        title="Clip-Cov",
        source="arXiv 2505.22617",
        estimator=Estimator(ZSCORE, Clip(1.0, 1.0), aggregation=TOKEN_MEAN, mask=ClipCov(2e-4, 1.0, 5.0)),
        formula="j = min(ρ A, clip(ρ, 0, 2) A), 0 for a random 0.02% of the tokens with covariance between 1 and 5",
        bias=(
            "GRPO's estimator (T3) without a few tokens, chosen for their advantage and probability: biased "
            "against what lowers the entropy most."
        ),
        checks=("T3", "T34"),
        mirrors="verl 0.9.1 and the authors' scripts (clip range 1)",
        note="Covariance of a token: (A - mean A)(log π - mean log π). verl's default clip range is 0.2.",
    ),
    _card(
        name="kl_cov",
        title="KL-Cov",
        source="arXiv 2505.22617",
        estimator=Estimator(ZSCORE, Clip(1.0, math.inf), KL("abs", 1.0, anchor="old"), TOKEN_MEAN, mask=KLCov(2e-4)),
        formula="j = ρ A, minus β |log ρ| on the 0.02% of the tokens with the largest covariance",
        bias=(
            "GRPO's estimator (T3) without clip: off-policy an importance weight per token. The penalty holds "
            "the few tokens that lower the entropy most."
        ),
        checks=("T3", "T18", "T34"),
        mirrors="the authors' scripts (coefficient 1); verl 0.9.1 (|log ρ|)",
        note="The paper's fraction for 32B models; 2e-3 for 7B. verl's configuration has coefficient 0.1.",
    ),
    _card(
        name="dppo_tv",
        title="DPPO, total variation",
        source="arXiv 2602.04879",
        estimator=Estimator(
            CENTRED,
            Cispo(1.0, 19.0),
            aggregation=Aggregation("seq_mean_token_sum", length=1024),
            mask=Divergence("tv", 0.15, 0.15),
        ),
        formula="j = min(ρ, 20) held fixed · A log π, 0 where |p - p_old| > 0.15 in the direction of A",
        bias=DPPO_BIAS,
        checks=("T2", "T18"),
        mirrors="verl 0.9.1 (cap 20; threshold and advantage of its example)",
        note=(
            "Probabilities of the sampled token. A rare token may change its ratio a lot, a likely one may "
            "not; PPO's clip treats them the other way round."
        ),
    ),
    _card(
        name="dppo_kl",
        title="DPPO, two-outcome KL",
        source="arXiv 2602.04879",
        estimator=Estimator(
            CENTRED,
            Cispo(1.0, 19.0),
            aggregation=Aggregation("seq_mean_token_sum", length=1024),
            mask=Divergence("kl", 0.05, 0.05),
        ),
        formula=(
            "j = min(ρ, 20) held fixed · A log π, 0 where KL((p_old, 1-p_old), (p, 1-p)) > 0.05 in the direction of A"
        ),
        bias=DPPO_BIAS,
        checks=("T2", "T18"),
        mirrors="verl 0.9.1 (cap 20; threshold and advantage of its example)",
        note="Left out: the paper's variants over the top-k tokens, which need the full distribution.",
    ),
    _card(
        name="m2po",
        title="M2PO, second-moment trust policy optimization",
        source="arXiv 2510.01161",
        estimator=Estimator(ZSCORE, Clip(1.0, math.inf), aggregation=TOKEN_MEAN, mask=SecondMoment(0.04)),
        formula=(
            "j = ρ A; of the tokens with A log ρ > 0 the largest |log ρ| are dropped until the mean of (log ρ)² is "
            "at most 0.04"
        ),
        bias=(
            "On-policy it is GRPO's estimator (T3). Off-policy an importance weight per token; what is dropped is a "
            "bias, and only where the batch as a whole has moved."
        ),
        checks=("T3", "T18"),
        mirrors="Trinity-RFT (`m2po`)",
        note=(
            "Made for rollouts that are many updates old. AReaL looks at every token, between sampler and trainer; the "
            "authors' first code clips at that log-ratio instead of dropping."
        ),
    ),
    _card(
        name="top_entropy",
        title="Forking tokens: the policy gradient of the 20% of largest entropy",
        source="arXiv 2506.01939",
        estimator=Estimator(ZSCORE, Clip(0.2, 0.28), aggregation=TOKEN_MEAN, mask=TopEntropy(0.2)),
        formula="j = min(ρ A, clip(ρ, 1-0.2, 1+0.28) A) of the 20% of the batch's tokens with most entropy, else 0",
        bias=(
            "GRPO's weights (T3) on a part of the tokens, chosen without looking at rewards: it climbs the pass rate "
            "as far as that depends on where responses fork."
        ),
        checks=("T3", "T34"),
        mirrors="TRL 1.x (`top_entropy_quantile=0.2`: at least the interpolated quantile)",
        note=(
            "The paper puts it on DAPO. Shares stay those of all tokens, so what is left is also a smaller step. Each "
            "update needs a forward pass for the entropies."
        ),
    ),
    _card(
        name="adaptive_entropy",
        title="Skywork-OR1, an entropy bonus that moves",
        source="arXiv 2505.22312",
        estimator=Estimator(ZSCORE, Clip(), aggregation=TOKEN_MEAN, entropy_target=0.2),
        formula=(
            "J = mean over tokens of min(ρ A, clip(ρ) A) + c H;  c grows by 0.005 after an update with H <= 0.2 nats, "
            "else falls by 0.005, between 0 and 1;  no bonus in an update after one with H > 0.2"
        ),
        bias=(
            "GRPO's weights (T3), and below the target a pull towards the uniform distribution, whatever is right. It "
            "acts against the fall of entropy along a frequent right arm (T34)."
        ),
        checks=("T3", "T34"),
        mirrors="TRL 1.16 (`use_adaptive_entropy`: the last update decides about the next)",
        note=(
            "The paper asks the entropy of the update at hand. Left out: groups without a signal leave its batch. A "
            "language model begins near 0.3 to 1 nats a token, an answer of the simulator near 2, so the target there "
            "is `--estimator.entropy-target` of its own."
        ),
    ),
    _card(
        name="deepseek_v32",
        title="GRPO of DeepSeek-V3.2",
        source="arXiv 2512.02556",
        estimator=Estimator(
            CENTRED, Clip(), KL("k3", 0.001, weighted=True), Aggregation("seq_mean_token_mean"), mask=Drift(0.5)
        ),
        formula=(
            "J = mean_i (1/|o_i|) Σ_t [M_i min(ρ A, clip(ρ) A) - β ρ k3], M_i = 0 where A < 0 and mean_t "
            "log(π_old/π) > 0.5"
        ),
        bias=(
            "On-policy W = (K-1)/K. ρ k3, differentiated through ρ too, has the gradient of the reverse KL, "
            "where k3 alone has that of the forward KL."
        ),
        checks=("T2", "T18", "T23", "T31"),
        mirrors="TRL 1.x (`off_policy_mask_threshold`, `use_bias_correction_kl`)",
        note="The paper prints neither threshold nor coefficient: 0.5 and 0.001 are TRL's suggestions.",
    ),
)
