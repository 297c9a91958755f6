"""A design: the choices whose effects the seven experiments measure, in the same words for simulated and real runs."""

from dataclasses import field

from rftlab.shared.config.checked import config
from rftlab.shared.config.sampling import Sampling
from rftlab.shared.estimator import Estimator
from rftlab.shared.plumbing.errors import check, check_count
from rftlab.shared.plumbing.notebook import changed_table


@config
class Design:
    """The spending of a run's rollouts, and the estimator that turns them into updates."""

    batch_size: int = 32
    """B: contexts of a round (prompts, not completions)."""
    rollouts: int = 1
    """K: rollouts of each context that are trained on."""
    support_rollouts: int = 0
    """M: additional rollouts of each context that only feed the baseline set."""
    replay_window: int = 0
    """Most recent rewards of a context that form its baseline set, the current ones included; 0 means the current
    ones alone."""
    estimator: Estimator = field(default_factory=Estimator)
    """The estimator that turns rewards into updates."""
    sampling: Sampling = field(default_factory=Sampling)
    """Which contexts, rollouts and groups make up a round."""
    rounds: int = 2000
    """Training rounds: each samples rollouts and trains on them."""
    eval_every: int = 100
    """Rounds between two evaluations; divides `rounds`."""
    epochs: int = 1
    """Passes over the rollouts of a round."""
    minibatches: int = 1
    """Optimiser updates of a pass over the rollouts; divides the batch size."""

    def __post_init__(self):
        for name in ("batch_size", "rollouts", "rounds", "eval_every", "epochs", "minibatches"):
            check_count(name, getattr(self, name))
        for name in ("support_rollouts", "replay_window"):
            check_count(name, getattr(self, name), 0)
        check(
            self.replay_window == 0 or self.replay_window >= self.rollouts,
            f"replay_window = {self.replay_window}; allowed: 0, or at least rollouts = {self.rollouts}",
        )
        advantage, fewest = self.estimator.advantage, self.smallest_set
        lonely = advantage.singleton == "error" and fewest == 1 and advantage.of_group
        knobs = "rollouts, support_rollouts, sampling.keep, sampling.budget"
        check(
            not lonely,
            f"smallest baseline set = {fewest} ({knobs}); allowed: 2 or more where advantage.singleton is error",
        )
        check(
            advantage.k <= fewest, f"advantage.k = {advantage.k}; allowed: at most the smallest baseline set, {fewest}"
        )
        self._check_sampling()
        check(
            self.rounds % self.eval_every == 0, f"eval_every = {self.eval_every}; it must divide rounds = {self.rounds}"
        )
        check(
            self.batch_size % self.minibatches == 0,
            f"minibatches = {self.minibatches}; it must divide batch_size = {self.batch_size}",
        )

    def _check_sampling(self):
        sampling, plain = self.sampling, self.support_rollouts == 0 and self.replay_window == 0
        several = self.rollouts > 1 and plain
        check(
            sampling.tries == 1 or several,
            f"sampling.tries = {sampling.tries}; allowed: 1, or more where rollouts > 1 without support, replay",
        )
        check(
            sampling.keep <= self.rollouts,
            f"sampling.keep = {sampling.keep}; allowed: at most rollouts = {self.rollouts}",
        )
        check(
            sampling.keep == 0 or plain,
            f"sampling.keep = {sampling.keep}; allowed: 0 with support rollouts or a replay window",
        )
        check(
            sampling.replayed == 0 or (plain and self.estimator.advantage.combine == "rewards"),
            f"sampling.replayed = {sampling.replayed}; allowed: 0 with support rollouts, a replay window, or "
            "advantage.combine advantages",
        )
        check(
            sampling.budget == "equal" or several,
            "sampling.budget = 'difficulty'; allowed: equal, or rollouts > 1 without support, replay",
        )
        baseline = self.estimator.advantage.baseline
        whole = plain and sampling.keep == 0
        check(
            whole or baseline not in ("length_weighted", "optimal_token"),
            f"advantage.baseline = {baseline}; allowed: without support rollouts, replay window, sampling.keep",
        )
        check(
            sampling.replayed == 0 or not self.estimator.advantage.reads_squares,
            f"sampling.replayed = {sampling.replayed}; allowed: 0 with advantage.baseline optimal_token",
        )
        check(
            whole or self.estimator.advantage.combine == "rewards",
            "advantage.combine = advantages; allowed: without support rollouts, replay window, sampling.keep",
        )

    def _repr_html_(self) -> str:
        return changed_table(f"Design: B = {self.batch_size}, K = {self.rollouts}", self)

    @property
    def round_rollouts(self) -> int:
        """Rollouts that a round samples, including support rollouts."""
        return self.batch_size * (self.rollouts + self.support_rollouts)

    @property
    def group_size(self) -> int:
        """Largest number of responses of a context that a round trains on, including replayed ones."""
        return self.rollouts + self.sampling.replayed

    @property
    def smallest_set(self) -> int:
        """Rewards in the smallest baseline set that a round may meet."""
        return (
            1 if self.sampling.budget == "difficulty" else self.sampling.keep or self.rollouts + self.support_rollouts
        )

    @property
    def replayed(self) -> int:
        """Rewards from earlier visits in a full replay window."""
        return max(0, self.replay_window - self.rollouts)
