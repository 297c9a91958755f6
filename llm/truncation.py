"""Truncate the distribution of the next token: min-p, top-k and top-p, in the order of vLLM, with exactly the same
tokens.

A token that is left out has probability 0, and the others are scaled up. So the log-probability of a sampled token
under the sampler is above that under the policy. An update needs both, for the ratio in the estimator's `correction`.
"""

from typing import TYPE_CHECKING, NamedTuple

from rftlab.shared.plumbing.errors import check, check_count, check_finite

if TYPE_CHECKING:
    import torch


class Truncation(NamedTuple):
    """Limits on the tokens that may be sampled; the defaults keep all."""

    top_p: float = 1.0
    """Likeliest tokens whose probabilities reach this sum, above 0 and at most 1 (nucleus sampling, 1904.09751)."""
    top_k: int = 0
    """Number of likeliest tokens to keep; 0 is all."""
    min_p: float = 0.0
    """Tokens with at least this share of the likeliest one's probability (2407.01082)."""

    def check(self) -> None:
        """Raise UserError for a value outside its range."""
        check_finite("top_p", self.top_p, above=0)
        check(self.top_p <= 1, f"top_p = {self.top_p!r}; allowed: above 0, at most 1")
        check_count("top_k", self.top_k, 0)
        check_finite("min_p", self.min_p, 0)
        check(self.min_p <= 1, f"min_p = {self.min_p!r}; allowed: 0 to 1")

    def of_logits(self, logits: "torch.Tensor") -> "torch.Tensor":
        """Return logits (n, V), over the temperature, with -inf for tokens that are left out.

        Tokens as likely as the last one that top_k keeps are kept too.
        """
        inf = float("inf")
        if self.min_p > 0:
            probs = logits.softmax(-1)
            logits = logits.masked_fill(probs < self.min_p * probs.max(-1, keepdim=True).values, -inf)
        if 0 < self.top_k < logits.shape[-1]:
            logits = logits.masked_fill(logits < logits.topk(self.top_k).values[..., -1:], -inf)
        if self.top_p < 1:
            rising, order = logits.sort(-1)
            below = rising.softmax(-1).cumsum(-1) <= 1 - self.top_p
            below[..., -1] = False
            logits = logits.masked_fill(below.scatter(-1, order, below), -inf)
        return logits


WHOLE = Truncation()
"""Truncation that keeps all tokens."""
