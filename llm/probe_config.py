"""How much a pilot measures on a base model. Reading it needs no torch, so a command line can show it at once."""

from dataclasses import dataclass

from rftlab.shared.errors import check, check_count

VERSION = 1
"""Raised when a change makes equal configurations give other measurements."""
MAX_SAMPLES = 10_000
BLOCKS = 8
"""Blocks of questions whose gradients are summed, for a jackknife."""


@dataclass(frozen=True)
class ProbeConfig:
    """Questions and responses."""

    train_questions: int = 512
    """Training questions, whose gradients are measured too; at most all of them."""
    test_questions: int = 500
    """Unseen questions; at most all of them."""
    samples: int = 16
    """Responses to each; even, because gradients compare two halves."""

    def __post_init__(self):
        for name, least in (("train_questions", 2 * BLOCKS), ("test_questions", 2)):
            check_count(name, getattr(self, name), least)
        check_count("samples", self.samples, most=MAX_SAMPLES)
        check(
            self.samples >= 4 and self.samples % 2 == 0,
            f"samples = {self.samples}; allowed: 4 or more, and even: two groups of two or more",
        )
