"""Cards of the defaults of different libraries under the same names. They hold constants only, and none of a library's
other features."""

import math
from functools import partial

from rftlab.shared.cards.card import Card
from rftlab.shared.cards.paper import GRPO_BIAS
from rftlab.shared.config.advantage import Advantage
from rftlab.shared.config.aggregation import Aggregation
from rftlab.shared.config.kl import KL
from rftlab.shared.config.mask import Divergence
from rftlab.shared.config.ratio import Ratio
from rftlab.shared.config.surrogate import Clip, Reinforce
from rftlab.shared.estimator import Estimator

_card = partial(Card, family="Conventions of libraries")
TOKEN_MEAN = Aggregation("token_mean")
LENGTH = 1024
"""Placeholder for a library's constant length or padded width, in tokens."""

AGG_MODES: dict[str, dict[str, Aggregation]] = {
    "verl 0.9.1": {
        "token-mean": TOKEN_MEAN,
        "token-sum": Aggregation("token_sum"),
        "seq-mean-token-sum": Aggregation("seq_mean_token_sum"),
        "seq-mean-token-mean": Aggregation("seq_mean_token_mean", eps=1e-8),
        "seq-mean-token-sum-norm": Aggregation("seq_mean_token_sum", length=LENGTH),
    },
    "verl 0.8.0.dev": {
        "token-mean": TOKEN_MEAN,
        "seq-mean-token-sum": Aggregation("seq_mean_token_sum"),
        "seq-mean-token-mean": Aggregation("seq_mean_token_mean", eps=1e-8),
        "seq-mean-token-sum-norm": Aggregation("token_sum", length=LENGTH),
    },
    "paper's fork 0.7.0.dev": {
        "token-mean": Aggregation("token_mean", eps=1e-8),
        "seq-mean-token-sum": Aggregation("seq_mean_token_sum", empty="count"),
        "seq-mean-token-mean": Aggregation("seq_mean_token_mean", empty="count"),
        "seq-mean-token-sum-norm": Aggregation("token_sum", length=LENGTH),
    },
}
"""Aggregations of verl by version and `agg_mode`. A mode that a version does not have is absent."""

CARDS = (
    _card(
        name="grpo_verl",
        title="GRPO as verl 0.9 runs it",
        source="arXiv 2402.03300",
        estimator=Estimator(Advantage("group_mean", "group_std"), Clip(dual=3.0), aggregation=TOKEN_MEAN),
        formula="A = (r - mean) / (std + 1e-6), ddof 1;  J = (1/T) Σ_it max(min(ρ A, clip(ρ) A), 3A where A < 0)",
        bias=GRPO_BIAS,
        checks=("T3", "T4", "T31"),
        mirrors="verl 0.9.1",
        note=(
            "A group of one keeps its raw reward. KL is off by default; where it is on, k3 with coefficient "
            "1e-3 and micro-batches make this paper_code."
        ),
    ),
    _card(
        name="grpo_trl",
        title="GRPO as TRL runs it",
        source="arXiv 2402.03300",
        estimator=Estimator(
            Advantage("group_mean", "group_std", eps=1e-4, singleton="error"), Clip(), aggregation=TOKEN_MEAN
        ),
        formula="A = (r - mean) / (std + 1e-4), ddof 1;  J = (1/T) Σ_it min(ρ A, clip(ρ) A)",
        bias=GRPO_BIAS,
        checks=("T3", "T4", "T31"),
        mirrors="TRL 1.16",
        note=(
            "Refuses groups of one; no reference model. With vLLM it also masks responses by importance "
            "weight by default: see mis."
        ),
    ),
    _card(
        name="grpo_openrlhf",
        title="GRPO as OpenRLHF runs it (group_norm)",
        source="arXiv 2402.03300",
        estimator=Estimator(
            Advantage("group_mean", "group_std", eps=1e-9, singleton="error"),
            Clip(),
            KL("k1", 0.01, "reward"),
            TOKEN_MEAN,
        ),
        formula="A = (r - β Σ_t k1 - mean) / (std + 1e-9), ddof 1;  J = (1/T) Σ_it min(ρ A, clip(ρ) A)",
        bias=GRPO_BIAS,
        checks=("T3", "T4", "T31"),
        mirrors="OpenRLHF",
        note=(
            "Refuses groups of one. Left out: it normalises the reward first and takes the KL of a token's "
            "own future off the advantage afterwards."
        ),
    ),
    _card(
        name="grpo_open_instruct",
        title="GRPO as open-instruct runs it (centered)",
        source="arXiv 2402.03300, 2503.14476",
        estimator=Estimator(
            Advantage("group_mean", ddof=0, eps=1e-8, singleton="zero"),
            Clip(0.2, 0.272),
            KL("k3", 0.05, bounded=False),
            TOKEN_MEAN,
        ),
        formula="A = r - mean;  J = (1/T) Σ_it [min(ρ A, clip(ρ, 1-0.2, 1+0.272) A) - 0.05 k3]",
        bias="Unbiased up to the factor W = (K-1)/K of the group's mean.",
        checks=("T2", "T5", "T23", "T31"),
        mirrors="open-instruct",
        note=(
            "`standard` there divides by the population deviation + 1e-8. Left out: zero-signal groups leave "
            "the batch; here they count in T and the KL."
        ),
    ),
    _card(
        name="grpo_nano_aha",
        title="GRPO as nano-aha-moment runs it",
        source="arXiv 2402.03300",
        estimator=Estimator(
            Advantage("group_mean", "group_std", ddof=0, eps=1e-4, singleton="zero"),
            Reinforce(),
            KL("k3", 0.001, bounded=False),
            TOKEN_MEAN,
        ),
        formula="A = (r - mean) / (std + 1e-4), ddof 0;  j = A log π - 0.001 k3",
        bias=(
            "As GRPO, W times √(K/(K-1)): 1.41 at K = 2, 1.07 at K = 8, so a sweep over rollouts also changes the step."
        ),
        checks=("T3", "T4", "D3"),
        mirrors="nano-aha-moment",
        note="Population deviation, no ratio, no clip.",
    ),
    _card(
        name="grpo_nemo_rl",
        title="GRPO as NeMo-RL runs it",
        source="arXiv 2402.03300, 2402.14740",
        estimator=Estimator(
            Advantage("leave_one_out", "others_std", singleton="zero"), Clip(), KL("k3", 0.01), TOKEN_MEAN
        ),
        formula=(
            "A_i = (r_i - mean of the others) / (std of the others + 1e-6), not divided where that std is 0;  "
            "J = (1/T) Σ_it [min(ρ A, clip(ρ) A) - 0.01 k3]"
        ),
        bias=(
            "The divisor holds no own reward, so W is its mean inverse: contexts are weighed as by GRPO (T3), but a "
            "response that is right or wrong alone in its group counts undivided."
        ),
        checks=("T1", "T3", "T31"),
        mirrors="NeMo-RL 7ea279a (grpo_math_1B.yaml)",
        note="A group of one gives 0. In a group of 8 with one right response that one has advantage 1, in GRPO 2.5.",
    ),
    _card(
        name="grpo_areal",
        title="GRPO as AReaL's examples run it",
        source="arXiv 2402.03300, 2505.24298",
        estimator=Estimator(
            Advantage("group_mean", "group_std", whiten="tokens"), Clip(0.4, 0.4), aggregation=TOKEN_MEAN
        ),
        formula=(
            "A = whitened over the batch's tokens ((r - mean) / (std + 1e-6));  "
            "J = (1/T) Σ_it min(ρ A, clip(ρ, 0.6, 1.4) A)"
        ),
        bias=(
            "GRPO's weights of contexts (T3), then one mean and one deviation for the batch (T6). Where right and "
            "wrong responses differ in length the mean over tokens is not 0, and groups without signal get one."
        ),
        checks=("T3", "T6", "T31"),
        mirrors="AReaL 4aef98d (gsm8k_grpo.yaml)",
        note=(
            "Its rewards are 10 (r - 0.5), so its eps of 1e-5 is 1e-6 here; whitening there adds 1e-5 to the "
            "deviation. Left out: weights against a stale sampler, cut at 5."
        ),
    ),
    _card(
        name="prime_rl",
        title="prime-rl's default",
        source="arXiv 2602.04879, 2602.02276",
        estimator=Estimator(
            Advantage("group_mean", singleton="zero"),
            Clip(1.0, math.inf),
            KL("k2", 0.002, anchor="old"),
            TOKEN_MEAN,
            ratio=Ratio(floor=-math.inf, cap=math.inf),
            mask=Divergence("tv", 0.2, 0.2),
        ),
        formula="j = ρ A - 0.001 (log ρ)²; ρ A is left out where |p - p_old| > 0.2 in the direction of A",
        bias=(
            "On-policy W = (K-1)/K. Off-policy an importance weight per token without a cap; the mask drops what moved "
            "too far, and the square holds the rest."
        ),
        checks=("T2", "T18", "T23"),
        mirrors="prime-rl 559b447 (`default_loss_fn`)",
        note="There p_old is the inference engine's: `estimator.correction.kind ratio` compares with that.",
    ),
    _card(
        name="dr_grpo_oat",
        title="Dr. GRPO as oat runs it (drgrpo)",
        source="arXiv 2503.20783",
        estimator=Estimator(
            Advantage("group_mean", eps=1e-8, singleton="zero"),
            Clip(),
            aggregation=Aggregation("seq_mean_token_sum", length=LENGTH),
        ),
        formula="A = r - mean;  J = mean_i (1/L) Σ_t min(ρ A, clip(ρ) A), L the limit on responses",
        bias="Unbiased up to the factor W = (K-1)/K of the group's mean.",
        checks=("T2", "T12", "T31"),
        mirrors="oat",
        alias="dr_grpo",
        note=(
            "Differs from dr_grpo for groups of one alone, which give 0. L = 1024 here. It also truncates "
            "sampler weights at 2 by default: see tis."
        ),
    ),
    _card(
        name="ppo_verl",
        title="PPO as verl 0.9 runs it",
        source="arXiv 1707.06347, 1506.02438, 1912.09729",
        estimator=Estimator(Advantage("value", whiten="tokens"), Clip(dual=3.0), aggregation=TOKEN_MEAN),
        rollouts=1,
        formula=(
            "A = whitened over the batch's tokens (GAE, γ = λ = 1);  J = (1/T) Σ_it max(min(ρ A, clip(ρ) "
            "A), 3A where A < 0)"
        ),
        bias="Whitening takes off the batch's mean, a factor 1-1/N, and divides by one deviation: a learning rate.",
        checks=("T2", "T6", "T11", "T32"),
        mirrors="verl 0.9.1",
        note="GAE's returns for the critic are those before whitening.",
    ),
    _card(
        name="gspo_verl",
        title="GSPO as verl 0.9 runs it",
        source="arXiv 2507.18071",
        estimator=Estimator(
            Advantage("group_mean", "group_std"),
            Clip(3e-4, 4e-4),
            aggregation=Aggregation("seq_mean_token_mean", eps=1e-8),
            ratio=Ratio("sequence_token", floor=-math.inf, cap=10.0),
        ),
        formula=(
            "s_i = exp(min(mean_t log ρ_t, 10)), differentiated through each token alone;  J = mean_i "
            "mean_t min(s_i A, clip(s_i) A)"
        ),
        bias="As gspo on responses with one advantage.",
        checks=("T3", "T18", "T33"),
        mirrors="verl 0.9.1",
        alias="gspo",
        note="eps of 1e-8 in the mean over tokens: equal to gspo within 1e-8.",
    ),
    _card(
        name="grpo_passk_verl",
        title="Pass@k GRPO as verl 0.9 runs it",
        source="arXiv 2503.19595",
        estimator=Estimator(
            Advantage("second_best", "group_std", singleton="error"), Clip(dual=3.0), aggregation=TOKEN_MEAN
        ),
        formula="A = (best - second best) / (std + 1e-6) for the best response of a group, 0 for the others",
        bias=(
            "A single winner's group has deviation √(1/K), so A is √K times best_minus_second: for 0/1 "
            "rewards still the direction of pass@K."
        ),
        checks=("T8",),
        mirrors="verl 0.9.1 (`grpo_passk`)",
        note="Refuses groups of one.",
    ),
    _card(
        name="group_mean_reward",
        title="The group's mean as reward (arpo of the paper's fork)",
        source="code of arXiv 2601.22532",
        estimator=Estimator(Advantage("none", credit="set_mean"), Clip(dual=3.0), aggregation=TOKEN_MEAN),
        formula="A = mean reward of the group, for every response of it",
        bias=(
            "Unbiased up to the factor W = 1/K: a response's own reward is one of K in its credit; the others "
            "are noise. As if K rollouts were one."
        ),
        checks=("T1",),
        mirrors="verl 0.7.0.dev, the paper's fork (`arpo`; with a replay window `banditpo`)",
    ),
)
