"""Configuration of a pilot's measurements of a base model, and the products of gradients that it keeps. Reading it
needs no torch, so that a command line can show it at once."""

from typing import TYPE_CHECKING, NamedTuple

from rftlab.shared.config.checked import config
from rftlab.shared.plumbing.errors import check, check_count, check_finite

if TYPE_CHECKING:
    import numpy as np

VERSION = 3
"""Version of the measurements. It is raised when a change makes equal configurations give others."""
MAX_SAMPLES, MAX_SHOTS = 10_000, 64
BLOCKS = 8
"""Number of blocks of questions whose gradients are summed, for a jackknife."""


@config
class ProbeConfig:
    """Questions and responses."""

    train_questions: int = 512
    """Training questions, whose gradients are measured too; at most all of them. 0, with --model: none."""
    test_questions: int = 500
    """Unseen questions; at most all of them."""
    samples: int = 16
    """Responses to each question; even, because gradients compare two halves."""
    temperatures: tuple[float, ...] = (1.0, 0.7, 0.5, 0.3, 0.0)
    """Temperatures at which unseen questions are answered too; 0 takes the likeliest token. None after the flag:
    that of training alone, which costs nothing more."""
    temperature_questions: int = 256
    """Unseen questions that are answered at these temperatures."""
    temperature_samples: int = 4
    """Responses to each question at each temperature; one at 0."""
    many_questions: int = 64
    """Unseen questions that get many responses, for pass@k; 0: none."""
    many_samples: int = 64
    """Responses to each of these, those that it has already among them."""
    shots: int = 4
    """Training questions with their solutions that stand before the unseen questions of --temperature-questions, which
    are then answered greedily; fewer where they do not fit. 0: none."""

    def __post_init__(self):
        check_count("test_questions", self.test_questions, 2)
        check_count("train_questions", self.train_questions, 0 if self.train_questions == 0 else 2 * BLOCKS)
        check_count("shots", self.shots, 0, MAX_SHOTS)
        for name in ("samples", "temperature_samples", "many_samples"):
            check_count(name, getattr(self, name), most=MAX_SAMPLES)
        check_count("temperature_questions", self.temperature_questions, 2)
        check_count("many_questions", self.many_questions, 0)
        check(self.many_questions != 1, "many_questions = 1; allowed: 0, or 2 or more")
        for value in self.temperatures:
            check_finite("temperatures", value, 0)
        check(
            len(set(self.temperatures)) == len(self.temperatures), f"temperatures {self.temperatures} names one twice"
        )
        check(
            self.samples >= 4 and self.samples % 2 == 0,
            f"samples = {self.samples}; allowed: 4 or more, and even: two groups of two or more",
        )

    def others(self, training: float) -> tuple[float, ...]:
        """Return the temperatures other than that of training, whose responses are sampled anyway."""
        return tuple(value for value in self.temperatures if value != training)

    def rollouts(self, training: float, train: int, test: int) -> dict[str, int]:
        """Return the number of responses sampled for each part, given the sizes of the splits and the temperature of
        training."""
        n_train, n_test = min(train, self.train_questions), min(test, self.test_questions)
        each = sum(1 if value == 0 else self.temperature_samples for value in self.others(training))
        return {
            "train": n_train * self.samples,
            "test": n_test * self.samples,
            "temperatures": min(n_test, self.temperature_questions) * each,
            "many": min(n_test, self.many_questions) * max(0, self.many_samples - self.samples),
        }


class GradientProducts(NamedTuple):
    """Terms of a jackknifed analysis of variance of the gradients g_i1, g_i2 of two halves of G questions' responses,
    with g_i their mean."""

    group: int
    """Number of responses in a half."""
    block: "np.ndarray"
    """(G,) block of each question."""
    gram: "np.ndarray"
    """(BLOCKS, BLOCKS) inner products of the blocks' sums of g_i."""
    squares: "np.ndarray"
    """(G,) |g_i|^2."""
    differences: "np.ndarray"
    """(G,) |g_i1 - g_i2|^2."""
