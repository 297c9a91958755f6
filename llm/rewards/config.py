"""The part of a configuration about rewards that a user brings."""

import re

from rftlab.shared.config.checked import config
from rftlab.shared.plumbing.errors import check, check_finite, shown

RESERVED = ("strict", "flexible")
"""Names of the rewards that verifiers give."""
SECONDS = 60.0
"""That a call may take, unless a run says otherwise."""
_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_-]{0,39}")


@config
class NamedReward:
    """A reward by its name, the checksum of its source (shared/custom/identity.py), and its part in the sum."""

    name: str
    sha256: str
    weight: float = 1.0

    def __post_init__(self):
        check(
            _NAME.fullmatch(self.name) is not None and self.name not in RESERVED,
            f"reward name {self.name!r}; allowed: up to 40 letters, digits, - and _, a letter first, and not "
            f"{' or '.join(RESERVED)}; a dictionary from names to functions names them",
        )
        check_finite(f"weight of the reward {self.name}", self.weight)


def check_names(rewards: tuple[NamedReward, ...]) -> None:
    """Raise UserError where two rewards have one name."""
    kinds = isinstance(rewards, tuple) and all(isinstance(reward, NamedReward) for reward in rewards)
    check(kinds, f"rewards = {shown(rewards)}; allowed: a tuple of NamedReward")
    names = [reward.name for reward in rewards]
    twice = sorted({name for name in names if names.count(name) > 1})
    check(not twice, f"two rewards are called {', '.join(twice)}; allowed: names of their own")


def rewards_config(rewards: tuple[NamedReward, ...]) -> dict:
    """The same as plain values by name."""
    return {reward.name: {"sha256": reward.sha256, "weight": reward.weight} for reward in rewards}
