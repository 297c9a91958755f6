"""Configuration of sampling: how a round spends its rollouts, and which of them are trained on."""

from typing import Literal, get_args

from rftlab.shared.config.checked import config
from rftlab.shared.plumbing.errors import check, check_choice, check_count

Budget = Literal["equal", "difficulty"]


@config
class Sampling:
    """Which contexts, rollouts and groups make up a round."""

    tries: int = 1
    """Dynamic sampling: batches that may be sampled until batch_size groups have rewards that differ (DAPO,
    2503.14476); 1 turns it off. Every rollout is charged; what is still missing after the last try is filled with
    groups that teach nothing."""
    keep: int = 0
    """Group filtering: only the `keep` shortest responses of a group form its baseline set and are trained on (GFPO,
    2508.09726); 0 keeps all."""
    budget: Budget = "equal"
    """Rollouts. equal: the same for every context. difficulty: in proportion to sqrt(p (1-p)) of the context's past
    rewards, at least one, the same in total (Neyman's allocation)."""

    replayed: int = 0
    """Replayed responses: at most so many of a context's newest right responses (reward 1 or more) from earlier visits
    join its group. They are in its baseline set and are trained on, each with the ratio to the policy that sampled it,
    and cost no rollouts (RLEP, 2507.07451)."""

    def __post_init__(self):
        check_choice("sampling.budget", self.budget, get_args(Budget))
        check_count("sampling.tries", self.tries)
        check_count("sampling.keep", self.keep, 0)
        check_count("sampling.replayed", self.replayed, 0)
        check(
            self.replayed == 0 or (self.tries == 1 and self.keep == 0),
            f"sampling.replayed = {self.replayed}; allowed: 0 with sampling.tries above 1 or sampling.keep",
        )
