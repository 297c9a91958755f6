"""A design: the choices whose effects the seven experiments measure, in the same words for simulated and real runs."""

from dataclasses import dataclass, field

from shared.errors import check
from shared.estimator import Estimator


@dataclass(frozen=True)
class Design:
    """How a run spends its rollouts, and the estimator that turns them into updates."""

    batch_size: int = 32
    """B: contexts of a round (prompts, not completions)."""
    rollouts: int = 1
    """K: rollouts of each context that are trained on."""
    support_rollouts: int = 0
    """M: further rollouts of each context that only feed the baseline set."""
    replay_window: int = 0
    """Most recent rewards of a context that form its baseline set, the current ones included; 0 means the current ones alone."""
    estimator: Estimator = field(default_factory=Estimator)
    """How rewards become updates."""
    rounds: int = 2000
    """Training rounds."""
    eval_every: int = 100
    """Rounds between two evaluations; divides `rounds`."""
    epochs: int = 1
    """Passes over the rollouts of a round."""
    minibatches: int = 1
    """Optimiser updates of a pass; divides `batch_size`."""

    def __post_init__(self):
        for name in ("batch_size", "rollouts", "rounds", "eval_every", "epochs", "minibatches"):
            check(getattr(self, name) >= 1, f"{name} = {getattr(self, name)}; allowed: 1 or more")
        for name in ("support_rollouts", "replay_window"):
            check(getattr(self, name) >= 0, f"{name} = {getattr(self, name)}; allowed: 0 or more")
        check(
            self.replay_window == 0 or self.replay_window >= self.rollouts,
            f"replay_window = {self.replay_window}; allowed: 0, or at least rollouts = {self.rollouts}",
        )
        advantage, sampled = self.estimator.advantage, self.rollouts + self.support_rollouts
        lonely = advantage.singleton == "error" and sampled == 1 and advantage.kind in ("group_mean", "group_zscore", "leave_one_out")
        check(not lonely, f"rollouts + support_rollouts = {sampled}; allowed: 2 or more where advantage.singleton is error")
        check(self.rounds % self.eval_every == 0, f"eval_every = {self.eval_every}; it must divide rounds = {self.rounds}")
        check(self.batch_size % self.minibatches == 0, f"minibatches = {self.minibatches}; it must divide batch_size = {self.batch_size}")

    @property
    def replayed(self) -> int:
        """Rewards of earlier visits in a full window."""
        return max(0, self.replay_window - self.rollouts)
