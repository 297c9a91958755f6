"""Cards of estimators that compare the responses of one context, other than GRPO and RLOO."""

from functools import partial

from rftlab.shared.cards.card import Card
from rftlab.shared.cards.paper import GRPO_BIAS, ZSCORE
from rftlab.shared.config.advantage import Advantage
from rftlab.shared.config.aggregation import Aggregation
from rftlab.shared.config.kl import KL
from rftlab.shared.config.sampling import Sampling
from rftlab.shared.config.shaping import Length
from rftlab.shared.config.surrogate import Clip, Reinforce
from rftlab.shared.estimator import Estimator

_card = partial(Card, family="Groups and batches")
TOKEN_MEAN = Aggregation("token_mean")

CARDS = (
    _card(
        name="reinforce_pp",
        title="REINFORCE++",
        source="arXiv 2501.03262",
        estimator=Estimator(Advantage("none", whiten="tokens"), Clip(), KL("k1", 0.01, "reward"), TOKEN_MEAN),
        rollouts=1,
        formula="A = whitened over the batch's tokens (r - β Σ_t k1);  j = min(ρ A, clip(ρ, 1-ε, 1+ε) A)",
        bias=(
            "One mean and one deviation for the batch: a factor 1-1/N and a learning rate. No baseline of the "
            "context, so its variance stays."
        ),
        checks=("T2", "T6", "T10"),
        mirrors="verl (whitening); OpenRLHF (KL in the reward, k1, 0.01)",
        note=(
            "A batch without any reward is whitened KL noise. Left out: the paper takes a token's own future "
            "KL off its advantage, this the whole response's."
        ),
    ),
    _card(
        name="reinforce_pp_baseline",
        title="REINFORCE++ with the group's mean",
        source="arXiv 2501.03262",
        estimator=Estimator(Advantage("group_mean", whiten="tokens"), Clip(), KL("k2", 0.001), TOKEN_MEAN),
        formula="A = whitened over the batch's tokens (r - mean);  j = min(ρ A, clip(ρ, 1-ε, 1+ε) A) - β k2",
        bias=(
            "W -> ((K-1)/K) / √(E[pq] (K-1)/K), the same for every context: a learning rate. Zero-signal "
            "groups keep zero variance but count in the deviation."
        ),
        checks=("T2", "T6", "T23"),
        mirrors="verl (whitening)",
        note="The KL penalty is k2 in the loss, whose gradient is that of the reverse KL; its coefficient is ours.",
    ),
    _card(
        name="gdpo",
        title="GDPO, a z-score for each reward",
        source="arXiv 2601.05242",
        estimator=Estimator(
            Advantage("group_mean", "group_std", whiten="tokens", combine="advantages"), Clip(), aggregation=TOKEN_MEAN
        ),
        formula=(
            "A = whitened over the batch's tokens (Σ_c w_c (r_c - mean_c) / (std_c + eps));  "
            "j = min(ρ A, clip(ρ, 1-ε, 1+ε) A)"
        ),
        bias=(
            "Each reward is divided by its own deviation, so that weights, not scales, say how much it counts. With "
            "one reward it is GRPO's change of objective (T3) and a learning rate."
        ),
        checks=("T3", "T6"),
        mirrors="verl (advantages); TRL: multi_objective_aggregation normalize_then_sum",
        note=(
            "Rewards are those of `--reward`, with their weights, and in the simulator the answer's and "
            "`environment.format_reward`. No support rollouts, replay window or penalty on the reward. Left out: "
            "rewards that count only where an easier one is earned."
        ),
    ),
    _card(
        name="lite_ppo",
        title="Lite PPO",
        source="arXiv 2508.08221",
        estimator=Estimator(Advantage("group_mean", "batch_std"), Clip(), aggregation=TOKEN_MEAN),
        formula="A = (r - mean) / (std of the batch's rewards + eps);  J = (1/T) Σ_it min(ρ A, clip(ρ, 1-ε, 1+ε) A)",
        bias=(
            "W -> ((K-1)/K) / √(p̄ q̄), the same for every context: a learning rate instead of GRPO's change "
            "of objective."
        ),
        checks=("T2", "T6", "T31"),
        note="The deviation is that of the rewards, not of the centred ones (reinforce_pp_baseline). eps is ours.",
    ),
    _card(
        name="gpg",
        title="GPG, group policy gradient",
        source="arXiv 2504.02546",
        estimator=Estimator(Advantage("group_mean", "nonzero"), Reinforce(), aggregation=TOKEN_MEAN),
        formula="A = (r - mean) R / #(r ≠ 0);  j = A log π",
        bias=(
            "W = (K-1)/K times R/#(r ≠ 0), one factor for the whole batch, about 1/p̄: a learning rate that "
            "falls as the pass rate rises."
        ),
        checks=("T2", "T5"),
        mirrors="verl 0.9.1",
        note=(
            "Left out: the paper scales by the groups with a signal, R/(R - responses of zero-signal groups), "
            "where verl counts rewards that are not 0."
        ),
    ),
    _card(
        name="max_rl",
        title="MaxRL, maximum likelihood by policy gradient",
        source="arXiv 2602.02710",
        estimator=Estimator(Advantage("group_mean", "group_mean", eps=0.0, singleton="zero"), Clip()),
        formula="A = (r - mean) / mean, 0 where mean <= 0",
        bias=(
            "W = (1 - q^(K-1)) / p: the gradient of log p cut off at order K-1. It weighs contexts by 1/p, where "
            "GRPO's weight is 1/√(pq) (T3)."
        ),
        checks=("T3", "T5", "T20"),
        mirrors="prime-rl 559b447 (`max_rl`)",
        note="SkyRL adds 1e-6 to the mean and keeps the raw reward of a group of one. For rewards of 0 or more.",
    ),
    _card(
        name="james_stein",
        title="James-Stein shrinkage baseline",
        source="arXiv 2511.03710",
        estimator=Estimator(Advantage("james_stein"), Reinforce()),
        rollouts=2,
        formula=(
            "A_ij = r_ij - (1-λ_i) mean of the others - λ_i mean of the other groups' means;  "
            "λ_i = (n-1)/n v_i / (v_i + s_i)"
        ),
        bias=(
            "Unbiased, W = 1: a baseline of other responses and other prompts alone. Where a group's mean is mostly "
            "noise it borrows the batch's: less variance than RLOO (T12), most at small K."
        ),
        checks=("T1", "T10", "T12"),
        note=(
            "v_i is the mean variance of the other groups' means, s_i how far these lie apart. A group of one keeps "
            "its raw reward."
        ),
    ),
    _card(
        name="opo",
        title="OPO, optimal reward baseline",
        source="arXiv 2505.23585",
        estimator=Estimator(Advantage("length_weighted"), Reinforce()),
        formula="A_i = r_i - Σ_j |o_j| r_j / Σ_j |o_j|;  j = A log π, exactly on-policy",
        bias=(
            "The lengths stand for |s|² in the optimal baseline. A response is in its own baseline: W = "
            "(K-1)/K where lengths are equal."
        ),
        checks=("T2", "T10"),
        note=(
            "No KL penalty, no entropy bonus, one update per round. With equal lengths the baseline is the "
            "group's mean."
        ),
    ),
    _card(
        name="best_minus_second",
        title="Best minus second best",
        source="arXiv 2503.19595",
        estimator=Estimator(Advantage("second_best"), Reinforce()),
        formula="A = best - second best for the best response of a group, 0 for the others",
        bias=(
            "Unbiased for pass@K: the sum over a group has mean gradient grad pass@K, its mean W = q^(K-1). "
            "Silent unless exactly one response is right."
        ),
        checks=("T8",),
        note=(
            "Each response against the best of the others, which is 0 except for a single winner. With "
            "deviation: grpo_passk_verl."
        ),
    ),
    _card(
        name="pkpo",
        title="PKPO, pass@k policy optimization",
        source="arXiv 2505.15201",
        estimator=Estimator(Advantage("leave_one_out", credit="pass_at_k", k=4), Reinforce()),
        formula="A = k (1 - pass@(k-1) of the other responses) for a right response, 0 for a wrong one;  j = A log π",
        bias=(
            "Unbiased for pass@k at any k up to K: W = k q^(k-1). Taking off the pass@k of the others lowers "
            "the variance and leaves the mean."
        ),
        checks=("T8", "S2"),
        note=(
            "k = 4 here; k = 1 is the raw reward, k = K is K times best minus second best. Needs 0/1 rewards "
            "and groups of at least k."
        ),
    ),
    _card(
        name="gfpo",
        title="GFPO, group-filtered policy optimization",
        source="arXiv 2508.09726",
        estimator=Estimator(ZSCORE, Clip(), KL("k3", 0.001), TOKEN_MEAN, entropy=0.001),
        sampling=Sampling(keep=8),
        rollouts=24,
        formula="A = (r - mean) / (std + eps) over the 8 shortest of 24 responses; the others are not trained on",
        bias=(
            "Biased towards short responses, on purpose; W as GRPO's with K = 8 where length says nothing "
            "about the reward."
        ),
        checks=("T3", "T5"),
        note=(
            "The others are charged to the budget. Left out: ranking by reward per token. The coefficients of "
            "KL and entropy are ours."
        ),
    ),
    _card(
        name="rlep",
        title="RLEP, replayed responses",
        source="arXiv 2507.07451",
        estimator=Estimator(ZSCORE, Clip(0.2, 0.28), aggregation=TOKEN_MEAN),
        sampling=Sampling(replayed=2),
        formula=(
            "A = (r - mean) / (std + eps) over the K new responses of a context and its 2 newest right ones of earlier "
            "visits;  J = (1/T) Σ_it min(ρ A, clip(ρ, 1-0.2, 1+0.28) A), ρ to the policy that sampled"
        ),
        bias=(
            "Biased: a response joins because it was right, so the mean and deviation are no longer those of the "
            "policy, and a ratio per token does not undo the choice (T18). It is GRPO among new responses alone (T3). "
            "A context whose new responses are all wrong still teaches once one was right."
        ),
        checks=("T3", "T18"),
        note=(
            "The paper replays responses of a finished run, this those of the run itself, so nothing is replayed "
            "before the second visit of a context. Their number and the deviation's convention are ours."
        ),
    ),
    _card(
        name="dapo",
        title="DAPO",
        source="arXiv 2503.14476",
        estimator=Estimator(ZSCORE, Clip(0.2, 0.28), aggregation=TOKEN_MEAN, length=Length(1.0, 20480, 4096)),
        sampling=Sampling(tries=10),
        formula=(
            "A = (r - mean) / (std + eps);  J = (1/T) Σ_it min(ρ A, clip(ρ, 1-0.2, 1+0.28) A); groups "
            "without signal are sampled again"
        ),
        bias=GRPO_BIAS
        + " Replacing zero-signal groups multiplies the mean gradient by 1 over the share of the others (T35): a "
        "learning rate, paid in rollouts.",
        checks=("T3", "T4", "T5", "T31", "T32", "T35"),
        mirrors="its scripts on verl (10 tries)",
        note=(
            "No KL. The penalty on long responses has the paper's limits, so it acts from 16,384 tokens on. "
            "Its scripts also set a dual clip of 10."
        ),
    ),
)
