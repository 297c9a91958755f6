"""The command line of `rftlab export`: leave with what was trained."""

from dataclasses import dataclass
from pathlib import Path

import tyro
from rich.console import Console

from rftlab.shared.plumbing.errors import check, check_count
from rftlab.studies.console.table import say
from rftlab.studies.data.runs.limits import NEEDS_LLM, has_llm


@dataclass(frozen=True)
class Export:
    """Write a trained model as a Hugging Face folder.

        rftlab export results/train my-model

    Weights in float32, configuration, tokenizer with its chat template, generation settings, and a card with the design
    and the curve. transformers, vLLM and others load it. A run with adapters gives a PEFT adapter, or with --merge the
    whole model.
    """

    run: tyro.conf.Positional[Path]
    """Folder of `rftlab train`."""
    folder: tyro.conf.Positional[Path]
    """A new folder for the model."""
    round: int | None = None
    """Round of the checkpoint; the last if left out."""
    merge: bool = False
    """Write adapters into the weights of the whole model."""

    def __post_init__(self):
        if self.round is not None:
            check_count("round", self.round, 0)

    def execute(self, console: Console) -> int:
        """Write the folder, and say what is in it."""
        check(has_llm(), f"rftlab export {NEEDS_LLM}")
        from rftlab.llm.export import export
        from rftlab.llm.stored import stored_run

        def remark(text: str) -> None:
            console.print(text, style="yellow", markup=False, highlight=False)

        done = export(stored_run(self.run), self.folder, self.round, self.merge, remark)
        say(console, f"model after round {done}: {self.folder}")
        return 0
