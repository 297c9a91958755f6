"""What all entrants of the league (league.py) have in common."""

from dataclasses import dataclass

from rftlab.shared.plumbing.errors import check
from rftlab.studies.data.paper.pairs import pairs_at
from rftlab.studies.data.runs.limits import check_size


@dataclass(frozen=True)
class Rules:
    """What all entrants have in common."""

    pairs: tuple[str, ...] = ("qwen-gsm8k", "llama-gsm8k", "olmo-gsm8k")
    """Model-dataset pairs."""
    seeds: int = 5
    """Seeds of every pair: 0 .. N-1 of the first, N .. 2N-1 of the second, and so on."""
    rounds: int = 1000
    """Training rounds."""
    batch_size: int = 32
    """Contexts of a round."""
    rollouts: int = 8
    """Rollouts of each context, for entrants that need a group."""
    minibatches: int = 4
    """Updates of a round: with one, ratios are 1 and all surrogates agree."""
    noise: float = 0.1
    """Standard deviation of the noise on the sampler's logits: with 0, importance corrections do nothing."""
    style_tokens: float = 15.0
    """Mean number of style tokens of a response: with 0, aggregations and sequence ratios agree."""

    def __post_init__(self):
        once = len(self.pairs) > 0 and len(set(self.pairs)) == len(self.pairs)
        check(once, f"pairs = {self.pairs}; allowed: one or more of {', '.join(pairs_at('sim'))}, each once")
        check(self.seeds >= 2, f"seeds = {self.seeds}; allowed: 2 or more, because intervals are over seeds")
        check_size(self.seeds, self.rounds)
        check(self.rollouts >= 2, f"rollouts = {self.rollouts}; allowed: 2 or more, because most entrants need a group")
