"""Record measurements with their limits, and make the models and responses that checks measure."""

import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any, NamedTuple

import numpy as np
import torch
from transformers import AutoModelForCausalLM

from rftlab.llm.budget.devices import GPUS, Device, named_device, similar_gpu
from rftlab.llm.budget.shapes import KNOWN, Shape
from rftlab.llm.config import Compute
from rftlab.llm.policy.packing import Responses, packed
from rftlab.shared.plumbing.errors import plain
from tests.support.trainer.families import KINDS, config_of

PASSED, FAILED, NOT_RUN = "passed", "failed", "not run"
SMOLLM2_SHAPE = next(iter(KNOWN))
QWEN, *OTHERS = (name for name in KNOWN if "/" in name)
SMALL: dict[str, Any] = {
    "vocabulary": 512,
    "hidden": 128,
    "layers": 2,
    "heads": 4,
    "kv_heads": 2,
    "head_dim": 32,
    "ffn": 192,
}  # fmt: skip
"""Reduced shape of a model where there is no GPU."""
NO_GPU = "needs a GPU"
CODEC: Any = SimpleNamespace(stops=(2,))
"""The part of a codec that an engine needs: the stop id, which random weights hardly ever draw."""


class Part(NamedTuple):
    """One measured value with its limit."""

    name: str
    status: str
    value: float | bool | str | None
    limit: str
    note: str = ""


class Bench:
    """The device under check, and the parts of one check."""

    def __init__(self, device: str):
        """Set up the bench; device: cpu or cuda."""
        self.device, self.gpu = device, device == "cuda"
        self.parts: list[Part] = []
        self.constants: dict[str, float] = {}

    def within(self, name: str, value: float, least: float = -math.inf, most: float = math.inf, note: str = "") -> None:
        """Record a number, which passes between two limits; nan fails."""
        limit = " and ".join(
            text for text, there in ((f">= {least:g}", least > -math.inf), (f"<= {most:g}", most < math.inf)) if there
        )
        status = PASSED if least <= value <= most else FAILED
        self.parts.append(Part(name, status, float(value) if math.isfinite(value) else str(value), limit, note))

    def holds(self, name: str, value: bool, note: str = "") -> None:
        """Record a fact, which passes where it is true."""
        self.parts.append(Part(name, PASSED if value else FAILED, bool(value), "true", note))

    def skip(self, name: str, why: str = NO_GPU, value: float | None = None) -> None:
        """Record a part that could not run here, with the reason; value: a measurement on another device."""
        self.parts.append(Part(name, NOT_RUN, value, "", why))

    def error(self, error: BaseException) -> None:
        """Record that the check ended with an error."""
        self.parts.append(Part("error", FAILED, f"{type(error).__name__}: {plain(str(error))[:300]}", "none"))

    @property
    def status(self) -> str:
        """Status of the whole check, passed only where every part ran and passed."""
        seen = {part.status for part in self.parts}
        return FAILED if FAILED in seen or not seen else NOT_RUN if NOT_RUN in seen else PASSED

    def shape(self, name: str) -> Shape:
        """Return the shape of a known model, or on a CPU that of a small one of its kind."""
        return KNOWN[name] if self.gpu else KNOWN[name]._replace(**SMALL)

    def model(self, name: str, spread: float = 0.02) -> Any:
        """Return a model of that shape with random weights, the same on every device. spread: their standard
        deviation."""
        torch.manual_seed(0)
        config = config_of(KINDS[name], self.shape(name))
        config.initializer_range, config.max_position_embeddings = spread, 4096
        with torch.device("cpu"):
            return AutoModelForCausalLM.from_config(config, dtype=torch.float32, attn_implementation="sdpa")

    def compute(self, **more: Any) -> Compute:
        """Return the settings of a run on the device."""
        return Compute(**{"device": self.device, "precision": "bf16" if self.gpu else "fp32"} | more)

    def responses(self, prompts: int, rollouts: int, prompt: int, response: int, spread: int = 0) -> Responses:
        """Return random responses to random prompts; spread: largest difference of lengths, in tokens."""
        rng, words = np.random.default_rng(0), SMALL["vocabulary"]
        lengths = response - rng.integers(0, spread + 1, prompts * rollouts)
        tokens, starts = packed([rng.integers(3, words, n).tolist() for n in lengths])
        asked = tuple(tuple(rng.integers(3, words, prompt).tolist()) for _ in range(prompts))
        return Responses(asked, np.repeat(np.arange(prompts), rollouts), tokens, starts)

    def used(self) -> float:
        """Return the bytes of the GPU that are in use by any process."""
        free, total = torch.cuda.mem_get_info()
        return float(total - free)


def describe(device: str) -> dict[str, Any]:
    """Return the report's facts about the device."""
    if device != "cuda":
        return {"name": named_device("cpu", None).name, "memory": named_device("cpu", None).memory, "like": None}
    properties, free = torch.cuda.get_device_properties(0), torch.cuda.mem_get_info()[0]
    like = similar_gpu(properties.name, properties.total_memory) or GPUS["A100-40"]  # as plans of other GPUs do
    return {"name": properties.name, "memory": float(free), "like": like.name}


def plan_device(bench: Bench) -> Device:
    """Return the device of the plans to which measurements are compared."""
    return named_device(bench.device, None, torch.get_num_threads())


@contextmanager
def planted(place: Any, name: str, fault: Callable) -> Iterator[None]:
    """Replace a function by a faulty one inside the block, for a control."""
    plain_one = getattr(place, name)
    setattr(place, name, fault)
    try:
        yield
    finally:
        setattr(place, name, plain_one)
