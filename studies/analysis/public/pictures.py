"""Pictures of the sources whose numbers are not shipped."""

from typing import NamedTuple

from rftlab.studies.analysis.public.store import DATA


class Picture(NamedTuple):
    """A rendered figure (dev/public_runs.py): its file in the package, and what to see in it."""

    file: str
    alt: str
    caption: str

    def read(self) -> bytes:
        """The picture, png."""
        return (DATA / self.file).read_bytes()


PICTURES: tuple[Picture, ...] = (
    Picture(
        "public_learning_rates.png",
        "Test Pass@1 of nine learning rates against steps and against rate times steps, with one sigmoid each.",
        "Nine learning rates, a run each (Qwen2.5-Math-1.5B). Against rate × steps those that do not collapse come "
        "together, but do not coincide: slow ones stay below, fast ones above. Dashed, one sigmoid for all of them.",
    ),
    Picture(
        "public_single_runs.png",
        "Test Pass@1 of single runs: three advantages on the left, passes and updates a round on the right.",
        "The same model, a run each. Left, the advantage. Right, passes over a batch and updates a round; dotted are "
        "unintended repeats of the configuration of the same colour: a pair of them is as far apart as most choices.",
    ),
    Picture(
        "public_starts.png",
        "Test Pass@1 on GSM8K of two PPO runs and of two model sizes, a run each.",
        "GSM8K, a run each. Left, PPO with two response limits (Qwen2.5-0.5B-Instruct): it starts from zero because "
        "the marker of the answer is missing. Right, two sizes of Qwen3, evidently scored by different rules.",
    ),
)
