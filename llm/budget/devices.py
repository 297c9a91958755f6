"""Accelerators as numbers, and the one at hand."""

import os
from typing import Literal, NamedTuple, get_args

from rftlab.shared.plumbing.errors import check_choice

GpuName = Literal["A100-40", "A100-80", "H100", "H200"]


class Device(NamedTuple):
    """What a plan needs of a machine."""

    name: str
    memory: float
    """Bytes that a process may use."""
    bf16: float
    """Multiplications and additions a second of dense matrix products, the most that its data sheet promises."""
    fp32: float
    """The same in float32, where torch uses no reduced precision unless told to."""
    bandwidth: float
    """Bytes a second."""
    note: str = ""
    """What a reader should know of these numbers."""


def _gpu(name: str, gigabytes: float, bf16: float, fp32: float, bandwidth: float) -> Device:
    return Device(name, gigabytes * 1e9, bf16 * 1e12, fp32 * 1e12, bandwidth * 1e12)


GPUS = {
    gpu.name: gpu
    for gpu in (
        _gpu("A100-40", 40, 312, 19.5, 1.555),
        _gpu("A100-80", 80, 312, 19.5, 2.039),
        _gpu("H100", 80, 989, 67, 3.35),
        _gpu("H200", 141, 989, 67, 4.8),
    )
}
"""From NVIDIA's data sheets (SXM): memory in units of 10^9 bytes, no sparsity."""
CORE, MEMORY_BUS = 96e9, 10e9
"""Of one core: two products of eight float32 a cycle at 3 GHz (docs/performance.md measured 112e9 to 121e9 on one
machine); and its memory, assumed."""


def named_device(device: str, gpu: GpuName | None, threads: int = 0) -> Device:
    """The machine of a run: the CPU, the GPU of that name, the one at hand, or the smallest one known where none is
    at hand."""
    if device == "cpu":
        return _cpu(threads)
    if gpu is not None:
        check_choice("gpu", gpu, get_args(GpuName))
        return GPUS[gpu]
    names = ", ".join(GPUS)
    return device_at_hand(device) or GPUS["A100-40"]._replace(note=f"no GPU is at hand; --gpu names another: {names}")


def _cpu(threads: int) -> Device:
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    used = min(threads or cores, cores)
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    note = "speed assumed, not measured; all of the machine's memory is counted"
    return Device(
        f"cpu, {used} thread{'s' if used > 1 else ''}", memory, used * CORE, used * CORE, used * MEMORY_BUS, note
    )


def device_at_hand(device: str) -> Device | None:
    """The GPU that torch sees, with the memory that is free on it; speed by its name."""
    try:
        import torch

        if not torch.cuda.is_available():
            return None
        properties, free = torch.cuda.get_device_properties(device), torch.cuda.mem_get_info(device)[0]
    except (ImportError, RuntimeError, AssertionError):
        return None
    alike = [gpu for gpu in GPUS.values() if gpu.name.split("-")[0] in properties.name]
    like = min(alike, key=lambda gpu: abs(gpu.memory - properties.total_memory), default=None)
    note = f"{free / 1e9:.1f} of {properties.total_memory / 1e9:.1f} GB are free" + (
        "" if like else "; its speed is not known: times are those of an A100-40"
    )
    return (like or GPUS["A100-40"])._replace(name=properties.name, memory=float(free), note=note)
