"""An advantage that is a function of the user's, by its name and the hash of its source (a surrogate is in
surrogate.py).

The hash is part of a configuration, so what ran with one function is never taken for what another one does.
`rftlab.shared.custom.functions` holds the functions.
"""

from typing import Any

from rftlab.shared.config.advantage import Advantage
from rftlab.shared.config.checked import config
from rftlab.shared.config.surrogate import OwnSurrogate
from rftlab.shared.plumbing.errors import check, check_choice


@config
class OwnAdvantage(Advantage):
    """Advantages of a group as a function of the user's finds them; `scale` and `whiten` may follow, where they look
    at the whole batch."""

    baseline: Any = "none"
    """The function's own affair: none."""
    name: str = ""
    """Name under which the function was registered."""
    source: str = ""
    """Hash of its source."""

    def __post_init__(self):
        super().__post_init__()
        check_choice("advantage.baseline (a function of your own)", self.baseline, ("none",))
        check_choice("advantage.credit (a function of your own)", self.credit, ("reward",))
        check_choice("advantage.scale (a function of your own)", self.scale, ("none", "batch_std", "nonzero"))
        check(self.gamma == 1, "advantage.gamma; allowed: 1 with a function of your own")

    @property
    def of_tokens(self) -> bool:
        """Rewards at tokens add up to those of responses."""
        return False

    @property
    def of_batch(self) -> bool:
        """A whole round is handed to the function at once."""
        return True


def is_own(part: object) -> bool:
    """Whether a part of an estimator is a function of the user's."""
    return isinstance(part, OwnAdvantage | OwnSurrogate)
