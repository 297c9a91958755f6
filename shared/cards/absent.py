"""Cards of methods that cannot run here, with what they would need."""

from functools import partial

from rftlab.shared.cards.card import Card

_card = partial(Card, family="Not here", estimator=None)

CARDS = (
    _card(
        name="prime",
        title="PRIME, implicit process rewards",
        source="arXiv 2502.01456",
        formula=(
            "r_t = β log(π_prm / π_ref) of each token, π_prm trained online on outcome labels; A = RLOO of both rewards"
        ),
        note=(
            "Needs a second model that is trained as implicit process reward model and gives a reward per "
            "token. Rewards here are 0/1 per response."
        ),
    ),
    _card(
        name="on_policy_distillation",
        title="On-policy distillation",
        source="arXiv 2306.13649",
        formula="A_t = log π_teacher - log π of each sampled token, in place of a reward",
        note=(
            "Needs a teacher's log-probability of every sampled token, and neither the simulator nor the trainer has a "
            "second model. In a loop of yours: `rl.losses.objective(..., advantages=teacher_logp - logp)`."
        ),
    ),
    _card(
        name="tpo",
        title="TPO, target policy optimization",
        source="arXiv 2604.06159",
        formula="J = Σ_i q_i log p_i over a group;  p = softmax of its responses' log π, q ∝ p_old exp(z-score of r)",
        note=(
            "Couples the responses of a group through a softmax over their likelihoods at every evaluation. Weights "
            "here are those of a token and of its response; a frozen batch does not know groups."
        ),
    ),
    _card(
        name="a_star_po",
        title="A*-PO",
        source="arXiv 2505.20686",
        formula="J = -(β log(π / π_ref) - (r - V*))² of a response;  V* = β log mean exp(r / β) under π_ref",
        note=(
            "Needs V* of every training prompt from several samples of the base policy before the first round. Its "
            "square of the whole response's log-ratio to the base policy is no penalty of a token."
        ),
    ),
    _card(
        name="vapo",
        title="VAPO, value-augmented PPO",
        source="arXiv 2504.05118",
        formula=(
            "GAE with λ = 1 for the critic and λ = 1 - 1/(α |o|) for the policy; clip-higher, token mean, "
            "a likelihood term on right answers"
        ),
        note=(
            "Needs a pretrained value model of every prefix and a λ that depends on the response's length; "
            "the knobs have a value per token and one λ."
        ),
    ),
)
