"""Describe a cluster on which the cells of a study would run, with its model and data."""

from dataclasses import dataclass, replace
from typing import Literal

from rftlab.llm.config import LLMRun
from rftlab.shared.plumbing.errors import check, check_count

EngineChoice = Literal["verl", "trl", "prime-rl", "slime"]
"""Trainers for several GPUs for which a design can be written."""
MAX_GPUS = 4096


@dataclass(frozen=True)
class Cluster:
    """GPUs of one kind in equal machines, and what replaces a pair's own model and data."""

    nodes: int = 1
    """Number of machines."""
    gpus_per_node: int = 8
    """GPUs of each machine."""
    tensor_parallel: int = 1
    """GPUs that hold one copy of vLLM's weights."""
    model: str | None = None
    """Model as the cluster finds it: a folder there, or OWNER/NAME on the hub; the pair's own if left out."""
    source: str | None = None
    """Where the task's problems come from, as --task.source of `rftlab train`; the pair's own if left out."""
    test_source: str | None = None
    """Where test problems come from, if from elsewhere."""

    def __post_init__(self):
        for name in ("nodes", "gpus_per_node", "tensor_parallel"):
            check_count(f"verl.{name}", getattr(self, name))
        relative = self.model is not None and (self.model.startswith((".", "~")) or "$" in self.model)
        check(not relative, f"verl.model = {self.model!r}; allowed: a folder from / on, or OWNER/NAME on the hub; no $")
        check(self.gpus <= MAX_GPUS, f"verl.nodes x verl.gpus_per_node = {self.gpus}; allowed: at most {MAX_GPUS}")
        check(
            self.gpus % self.tensor_parallel == 0,
            f"verl.tensor_parallel = {self.tensor_parallel}; it must divide the {self.gpus} GPUs",
        )

    @property
    def gpus(self) -> int:
        """Number of all GPUs."""
        return self.nodes * self.gpus_per_node

    def changed(self, run: LLMRun) -> LLMRun:
        """Return a run with the cluster's model and data in place of its own."""
        model = run.model if self.model is None else replace(run.model, source=self.model)
        source, test = self.source or run.task.source, self.test_source or run.task.test_source
        task = replace(run.task, source=source, test_source=test)
        return replace(run, model=model, task=task)
