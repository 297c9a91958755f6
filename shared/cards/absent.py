"""Methods that cannot exist here, and what they would need."""

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
