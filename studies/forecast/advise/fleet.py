"""Memory and time of a run on several GPUs, with its training state fully sharded (FSDP, ZeRO-3; 1910.02054).

Each GPU holds its share of weights, reference, optimizer states and gradients, and the whole weights of two blocks: the
one that computes and the next one, which is fetched. Activations and logits are the GPU's own. vLLM has all its weights
on each GPU, divided only where one copy spans several (tensor parallel).

Nothing here was measured on several GPUs. It is the dry run of one GPU (llm/budget) and arithmetic.
"""

import re
from dataclasses import dataclass, replace
from typing import NamedTuple

from rftlab.llm.budget.devices import GPUS, MEASURED, Device, known_gpu
from rftlab.llm.budget.footprint import MemoryUse, memory_use
from rftlab.llm.budget.plan import SLACK, STREAMING, Assumed, Cost, Duration, estimate_duration
from rftlab.llm.budget.shapes import Shape
from rftlab.llm.config import LLMRun
from rftlab.shared.plumbing.errors import UserError, check

NETWORK = 50e9
"""Bytes a second between machines: 400 Gbit/s for each GPU, assumed."""
SHARDED = ("weights", "reference", "optimiser", "gradients")
FETCHED = 2
"""Blocks of which all weights are on a GPU at a time: the one that computes and the next."""
EXCHANGED = 8
"""Bytes a GPU sends for each parameter and pass of an update: weights in bf16 forward and backward, gradients in
fp32."""
MAX, NODE = 4096, 8
"""Largest number of GPUs that may be named, and number of GPUs in a machine."""
_FLEET = re.compile(r"(?:([0-9]{1,6})x)?([A-Za-z0-9-]+(?::.+)?)")


@dataclass(frozen=True)
class Fleet:
    """GPUs of one kind."""

    count: int
    device: Device

    @property
    def name(self) -> str:
        """Name of the fleet as a user types it, such as 8xH100."""
        return f"{self.count}x{self.device.name}"


def parse_fleet(text: str) -> Fleet:
    """Return the fleet that a text names: 8xH100, or 8xmeasured:FILE. Raises UserError for GPUs that are not known."""
    named = _FLEET.fullmatch(text)
    if named is None or named[2].partition(":")[0] not in (*GPUS, MEASURED):
        raise UserError(f"gpus = {text!r}; allowed: COUNTxNAME as 8xH100, of {', '.join(GPUS)}, {MEASURED}[:FILE]")
    count = int(named[1] or 1)
    check(1 <= count <= MAX, f"gpus = {text!r}; allowed: 1 to {MAX} of them")
    return Fleet(count, known_gpu(named[2]))


class FleetPlan(NamedTuple):
    """Memory and time of one run on a fleet."""

    run: LLMRun
    fleet: Fleet
    memory: MemoryUse
    """Memory of each GPU."""
    duration: Duration
    """Wall-clock seconds. In the phase `exchange` GPUs wait for each other; none of it is hidden behind computing."""
    tensor_parallel: int
    """GPUs that hold one copy of vLLM's weights."""
    cache_gb: float
    """GB of vLLM's cache on each GPU."""

    @property
    def fits(self) -> bool:
        """Whether the memory of a GPU is enough for every phase."""
        return self.memory.peak <= (1 - SLACK) * self.fleet.device.memory

    @property
    def gpu_hours(self) -> float:
        """GPU-hours of the whole run."""
        return self.fleet.count * self.duration.seconds / 3600


def planned_on(run: LLMRun, shape: Shape, fleet: Fleet, assumed: Assumed) -> FleetPlan:
    """Return the plan of a run. vLLM's weights are split over the fewest GPUs at which sampling fits; its cache takes
    what is left, at most what a GPU's responses need."""
    splits = [split for split in (1, 2, 4, 8) if fleet.count % split == 0 and shape.heads % split == 0]
    for split in splits:
        cache = _cache(run, shape, fleet, assumed, split)
        own = replace(run, compute=replace(run.compute, cache_gb=cache / 1e9))
        memory = sharded(memory_use(own, shape, assumed[:2]), own, shape, fleet.count, split)
        if memory.total("sample") <= (1 - SLACK) * fleet.device.memory:
            break
    return FleetPlan(own, fleet, memory, _duration(own, shape, fleet, assumed, split), split, cache / 1e9)


def sharded(memory: MemoryUse, run: LLMRun, shape: Shape, count: int, split: int) -> MemoryUse:
    """Return the memory of each of `count` GPUs, from that of one. split: GPUs that hold one copy of vLLM's weights."""
    fetched = float(run.compute.number_bytes * (FETCHED * shape.block_products + shape.head))

    def share(phase: str, part: str, size: float) -> float:
        if part in SHARDED:
            return size / count
        if part == "bf16 copies" and count > 1:
            return fetched if phase != "sample" else 0.0
        return size / split if part == "vLLM weights" else size

    return MemoryUse(
        {
            phase: {part: share(phase, part, size) for part, size in parts.items()}
            for phase, parts in memory.phases.items()
        }
    )


def _cache(run: LLMRun, shape: Shape, fleet: Fleet, assumed: Assumed, split: int) -> float:
    """Return bytes of vLLM's cache on each GPU: enough for the GPU's responses of a round and their prompts, as far as
    there is room."""
    least = replace(run, compute=replace(run.compute, cache_gb=MIN_CACHE))
    memory = sharded(memory_use(least, shape, assumed[:2]), least, shape, fleet.count, split)
    phases = [phase for phase in memory.phases if "cache" in memory.phases[phase]]
    room = (1 - SLACK) * fleet.device.memory - max(memory.total(phase) for phase in phases) + MIN_CACHE * 1e9
    token = 2.0 * run.compute.number_bytes * shape.layers * shape.keys
    rows = run.design.round_rollouts
    need = rows / fleet.count * (assumed.prompt + assumed.response) * token
    return max(MIN_CACHE * 1e9, min(room, need))


MIN_CACHE = 0.5
"""Smallest size of vLLM's cache in GB."""


def _duration(run: LLMRun, shape: Shape, fleet: Fleet, assumed: Assumed, split: int) -> Duration:
    """Return the time of each phase from one GPU's part of the round, and that of exchanging weights and gradients."""
    device, count = fleet.device, fleet.count
    engines = count // split
    joined = device._replace(bf16=device.bf16 * split, bandwidth=device.bandwidth * split)
    wide = replace(run.compute, cache_gb=run.compute.cache_gb * split)
    sampling = estimate_duration(_part(replace(run, compute=wide), engines, assumed), shape, joined, assumed)
    training = estimate_duration(_part(run, count, assumed), shape, device, assumed)
    own = training.phases["update"].tokens
    passes = -(-own // run.compute.micro_tokens)
    seconds = passes * EXCHANGED * shape.trained * (count - 1) / count / (STREAMING * link_speed(fleet))
    phases = training.phases | {"sample": sampling.phases["sample"]}
    whole = {name: Cost(cost.tokens * (engines if name == "sample" else count), cost.seconds)
             for name, cost in phases.items()}  # fmt: skip
    if count > 1:
        whole["exchange"] = Cost(0, seconds)
    design = run.design
    rollouts = design.round_rollouts
    evaluation = Cost(sampling.evaluation.tokens * engines, sampling.evaluation.seconds)
    return Duration(whole, evaluation, design.rounds, design.rounds // design.eval_every + 1, rollouts)


def link_speed(fleet: Fleet) -> float:
    """Return bytes a second from a GPU to the others: NVLink inside a machine, the network where there are several."""
    return fleet.device.link if fleet.count <= NODE else NETWORK


def _part(run: LLMRun, count: int, assumed: Assumed) -> LLMRun:
    """Return the part of one GPU of `count`: prompts are divided first, then the responses of a prompt."""
    design, evaluation = run.design, run.evaluation
    own = -(-design.batch_size // count)
    each = -(-design.rollouts * design.batch_size // count) if design.batch_size < count else design.rollouts
    part = replace(design, batch_size=own, rollouts=max(each, 1), replay_window=0, minibatches=1)
    asked = (evaluation.train_subset, assumed.train), (evaluation.test_subset, assumed.test)
    train, test = (-(-min(subset or there, there) // count) for subset, there in asked)
    return replace(run, design=part, evaluation=replace(evaluation, train_subset=train, test_subset=test))


def least_gpus(run: LLMRun, shape: Shape, fleet: Fleet, assumed: Assumed) -> int | None:
    """Return the fewest GPUs, doubled from the fleet's, on which the run fits; None where none up to MAX does."""
    count = fleet.count
    while count <= MAX:
        if planned_on(run, shape, replace(fleet, count=count), assumed).fits:
            return count
        count *= 2
    return None
