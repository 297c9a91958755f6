"""The learning curve of one run, with the same columns for simulated and real runs; all figures and tables read it."""

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from rftlab.shared.plumbing.notebook import polylines, table

if TYPE_CHECKING:
    import pandas as pd


class Curve(NamedTuple):
    """Columns of equal length, one entry per evaluation; the first is the base policy, before training.

    Metrics of training (reward .. grad_norm) are means over the rounds since the last evaluation, nan at round 0.
    """

    seed: np.ndarray
    round: np.ndarray
    rollouts: np.ndarray
    """Rollouts sampled so far, support rollouts included."""
    tokens: np.ndarray
    """Response tokens sampled so far."""
    seconds: np.ndarray
    """Wall-clock seconds so far, evaluations included."""
    reward: np.ndarray
    """Mean reward of the trained rollouts."""
    train_pass_at_1: np.ndarray
    test_pass_at_1: np.ndarray
    kl: np.ndarray
    """Mean of the estimator's KL penalty per token; nan without one."""
    clip_fraction: np.ndarray
    """Share of tokens whose clip is active."""
    zero_signal_fraction: np.ndarray
    """Share of contexts whose advantages are all zero."""
    grad_norm: np.ndarray
    """Euclidean norm of the gradient of an update."""
    train_flexible: np.ndarray
    """Pass@1 of right answers, whether well formed or not."""
    test_flexible: np.ndarray

    def _repr_html_(self) -> str:
        x = [float(value) for value in self.round]
        train, test = self.train_pass_at_1.tolist(), self.test_pass_at_1.tolist()
        last = [("rounds", int(x[-1])), ("rollouts", int(self.rollouts[-1])), ("train Pass@1", train[-1]),
                ("test Pass@1", test[-1])] if x else []  # fmt: skip
        title = "Curve: test solid, train dashed, Pass@1 from 0 to 1"
        return polylines({"test Pass@1": (x, test), "train Pass@1": (x, train)}, ("train Pass@1",)) + table(title, last)

    def to_frame(self) -> "pd.DataFrame":
        """Return the curve as a data frame with a row for each evaluation."""
        import pandas as pd  # here, because estimators are used without it

        return pd.DataFrame(self._asdict())


def make_curve(rows: list[tuple]) -> Curve:
    """Return the curve of a list with one tuple per evaluation, in the order of the fields."""
    columns = zip(*rows, strict=True)
    kinds = {"seed": np.int64, "round": np.int64, "rollouts": np.int64, "tokens": np.int64}
    return Curve(
        *(
            np.array(column, dtype=kinds.get(name, np.float64))
            for name, column in zip(Curve._fields, columns, strict=True)
        )
    )


SPLITS = ("train", "test")
FLEXIBLE = ("train_flexible", "test_flexible")
"""Names of the curve's columns of Pass@1 where the format does not count, in the order of SPLITS."""
