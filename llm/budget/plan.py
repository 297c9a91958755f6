"""The needs of a run, before it runs: memory against a device's, time, and the smallest change that makes it fit."""

from collections.abc import Callable, Collection, Iterator
from dataclasses import replace
from itertools import combinations, product
from typing import Any, NamedTuple

from rftlab.llm.budget.devices import GPUS, Device
from rftlab.llm.budget.duration import Assumed, Duration, estimate_duration
from rftlab.llm.budget.footprint import MemoryUse, memory_use
from rftlab.llm.budget.shapes import Shape, adapted, read_shape
from rftlab.llm.config import LLMRun
from rftlab.shared.plumbing.errors import check

SLACK = 0.05
"""Part of a device's memory that stays free, for what its allocator cannot use; assumed."""
MIN = {"cache_gb": 0.5, "logit_rows": 128, "micro_tokens": 512, "sample_rows": 16}
"""A change goes no lower."""
FILL: dict[str, list] = {
    "sleep": [False],
    "gradient_checkpointing": [False],
    "micro_tokens": [8192, 16384, 32768, 65536],
    "sample_rows": [256, 512, 1024],
    "cache_gb": [2.0, 4.0, 8.0, 16.0, 32.0],
}
"""Values of fields of `compute` that are tried where memory is left on a GPU."""


class CostPlan(NamedTuple):
    """A run on a device."""

    run: LLMRun
    shape: Shape
    device: Device
    memory: MemoryUse
    duration: Duration
    assumed: Assumed

    @property
    def room(self) -> float:
        """Bytes that the run may use."""
        return (1 - SLACK) * self.device.memory

    @property
    def disk(self) -> float:
        """Bytes of checkpoints while the run trains: weights and two moments, of those that stay and of the one that is
        being written."""
        return (self.run.checkpoints_kept + 1) * 12.0 * self.shape.trained

    def memory_with(self, **change) -> MemoryUse:
        """Memory with other values of fields of `compute`."""
        return memory_use(replace(self.run, compute=replace(self.run.compute, **change)), self.shape, self.assumed[:2])

    @property
    def fits(self) -> bool:
        """Whether every phase has room."""
        return self.memory.peak <= self.room


def cost_plan(run: LLMRun, device: Device, assumed: Assumed, shape: Shape | None = None) -> CostPlan:
    """The plan of a run. Raises UserError for a model whose shape cannot be read, and for adapters of layers that it
    has not. shape: where it is known."""
    shape = adapted(shape or read_shape(run.model), run.lora)
    return CostPlan(
        run,
        shape,
        device,
        memory_use(run, shape, assumed[:2]),
        estimate_duration(run, shape, device, assumed),
        assumed,
    )


def smallest_change(plan: CostPlan, fixed: Collection[str] = ()) -> dict[str, float | int | bool] | None:
    """Fields of `compute`, none of them fixed, and the values with which the run fits; None where none of what is
    tried does.

    Fewer fields come first, then more harmless ones (`knobs`), then smaller changes of them.
    """
    tried = (change for change in changes(plan.run, plan.shape) if change.keys().isdisjoint(fixed))
    return next((change for change in tried if plan.memory_with(**change).peak <= plan.room), None)


def knobs(run: LLMRun, shape: Shape) -> dict[str, list]:
    """Values of fields of `compute` that save memory, each from the smallest change on; the most harmless field first.

    Less cache and fewer rows sample fewer responses side by side, shorter passes use an accelerator less, checkpointing
    computes a third more.
    """
    compute, smaller = run.compute, {}
    if compute.engine == "vllm":
        longest = run.model.max_prompt_length + run.model.max_response_length
        least = max(MIN["cache_gb"], longest * shape.layers * shape.keys * 2 * compute.number_bytes / 1e9)
        smaller["cache_gb"] = [value for value in _lower(compute.cache_gb, lambda value: value - 0.5) if value >= least]
    for name in ("logit_rows", "micro_tokens", "sample_rows"):
        smaller[name] = [
            value for value in _lower(getattr(compute, name), lambda value: value // 2) if value >= MIN[name]
        ]
    smaller["gradient_checkpointing"] = [] if compute.gradient_checkpointing else [True]
    return smaller


def _lower(value: float, less: Callable[[float], float]) -> Iterator[float]:
    while (value := less(value)) > 0:
        yield value


def changes(run: LLMRun, shape: Shape) -> Iterator[dict[str, float | int | bool]]:
    """Every change that is tried, in order."""
    known = knobs(run, shape)
    for count in range(1, len(known) + 1):
        for names in combinations(known, count):
            places = product(*(range(len(known[name])) for name in names))
            for place in sorted(places, key=lambda place: (sum(place), place)):
                yield {name: known[name][i] for name, i in zip(names, place, strict=True)}


def fastest_settings(plan: CostPlan, fixed: Collection[str] = ()) -> dict[str, Any]:
    """Fields of `compute`, none of them fixed, that make the run on a GPU fastest, by the plan's own estimates, among
    the values of FILL with which it fits; of equally fast ones those that need least memory. {} where none saves a
    hundredth."""
    tried = {
        name: sorted({getattr(plan.run.compute, name), *(() if name in fixed else values)})
        for name, values in FILL.items()
    }
    fitting: list[tuple[float, float, dict[str, Any]]] = []
    for values in product(*tried.values()):
        change = dict(zip(tried, values, strict=True))
        peak = plan.memory_with(**change).peak
        if peak <= plan.room:
            run = replace(plan.run, compute=replace(plan.run.compute, **change))
            seconds = estimate_duration(run, plan.shape, plan.device, plan.assumed).seconds
            fitting.append((round(seconds / plan.duration.seconds, 3), peak, change))
    share, _, change = min(fitting, key=lambda each: each[:2], default=(1.0, 0.0, {}))
    now = {name: getattr(plan.run.compute, name) for name in change}
    return {name: value for name, value in change.items() if value != now[name]} if share < 0.99 else {}


def filled(plan: CostPlan, fixed: Collection[str] = ()) -> LLMRun:
    """The run of a plan with the fastest settings that fit, or with the smallest change that makes it fit. Raises
    UserError where no change does."""
    change = fastest_settings(plan, fixed) if plan.fits else smallest_change(plan, fixed)
    check(
        change is not None,
        f"fill: the run needs {plan.memory.peak / 1e9:.1f} GB, {plan.room / 1e9:.1f} may be used, and no setting that "
        "was left open makes it fit; allowed: a larger GPU, fewer --compute flags",
    )
    return replace(plan.run, compute=replace(plan.run.compute, **change or {}))


def where_it_fits(plan: CostPlan) -> list[str]:
    """Names of known GPUs on which the run fits as it is."""
    return [gpu.name for gpu in GPUS.values() if plan.memory.peak <= (1 - SLACK) * gpu.memory]
