"""Numbers of accelerators: from data sheets, of the present machine, and as measured by `make gpu-check`."""

import math
import os
from contextlib import suppress
from pathlib import Path
from typing import Any, Literal, NamedTuple, get_args

from rftlab.shared.plumbing.errors import UserError, check_choice
from rftlab.shared.plumbing.folders import read_json

GpuName = Literal["A100-40", "A100-80", "H100", "H200"]
MEASURED, REPORT = "measured", Path("results/gpu-check.json")
"""Name of the GPU that a report describes, and path where `make gpu-check` writes the report."""
FORMAT = "rftlab gpu-check 1"
"""First field of a report of `make gpu-check`."""
UTILISATION = 0.3
"""Share of the peak rate of dense products that passes reach. This is an assumption, below the 0.46 that 2204.02311
reports for a tuned run of a large model."""
VLLM_STEP, VLLM_ROW = 2e-3, 2.1e-5
"""Smallest seconds of a decoding step of vLLM on any GPU, and further seconds for each row that is sampled. The first
is assumed, for recorded graphs; the second arises because one CPU thread schedules all rows (vLLM 0.32 took 5 CPU-ms
for 256 rows and 23 for 1,024, without a GPU)."""
SLEEP = 2.0
"""Seconds of a round in which vLLM frees its memory, takes it again and loads the weights, as vLLM's users report for
sleep level 2."""


class Device(NamedTuple):
    """Properties of a machine that a plan needs."""

    name: str
    memory: float
    """Bytes that a process may use."""
    bf16: float
    """Multiplications and additions per second of dense matrix products in bfloat16, the peak of the data sheet."""
    fp32: float
    """Multiplications and additions per second in float32, where torch uses no reduced precision unless told to."""
    bandwidth: float
    """Memory bandwidth in bytes per second."""
    note: str = ""
    """Remarks on these numbers for the user."""
    link: float = 0.0
    """Bytes per second from a GPU to the other GPUs of its machine."""
    utilisation: float = UTILISATION
    """Share of the peak rate of dense products that passes reach."""
    step: float = VLLM_STEP
    """Smallest seconds of a decoding step of vLLM."""
    row: float = VLLM_ROW
    """Further seconds of a decoding step for each row."""
    sleep: float = SLEEP
    """Seconds of a round in which vLLM sleeps and wakes up."""


MEASURED_RANGES = {"utilisation": (1e-3, 1.0), "step": (0.0, 1.0), "row": (0.0, 0.1), "sleep": (0.0, 600.0)}
"""Constants that a report measures, with the range that is accepted for each."""


def _gpu(name: str, gigabytes: float, bf16: float, fp32: float, bandwidth: float, link: float) -> Device:
    return Device(name, gigabytes * 1e9, bf16 * 1e12, fp32 * 1e12, bandwidth * 1e12, link=link * 1e9)


GPUS = {
    gpu.name: gpu
    for gpu in (
        _gpu("A100-40", 40, 312, 19.5, 1.555, 300),
        _gpu("A100-80", 80, 312, 19.5, 2.039, 300),
        _gpu("H100", 80, 989, 67, 3.35, 450),
        _gpu("H200", 141, 989, 67, 4.8, 450),
    )
}
"""Known GPUs from NVIDIA's data sheets (SXM). Memory is in units of 10^9 bytes, rates are without sparsity, and the
rate of NVLink is half the published one, which counts both directions."""
CORE, MEMORY_BUS = 96e9, 10e9
"""Rate of one core, two products of eight float32 a cycle at 3 GHz (docs/performance.md measured 112e9 to 121e9 on one
machine), and its memory bandwidth, which is assumed."""


def known_gpu(name: str) -> Device:
    """Return the GPU of a known name, or of a report: `measured`, or `measured:FILE`. Raises UserError for other
    names."""
    kind, _, file = name.partition(":")
    if kind == MEASURED:
        return measured_gpu(Path(file) if file else REPORT)
    check_choice("gpu", name, (*get_args(GpuName), f"{MEASURED}[:FILE]"))
    return GPUS[name]


def measured_gpu(path: Path) -> Device:
    """Return the GPU of a report of `make gpu-check`, with the constants that check 10 measured. Raises UserError for a
    file that is no complete report of a GPU."""
    allowed = "allowed: the report that `make gpu-check` writes on a GPU, with check 10 passed"
    try:
        said: Any = read_json(path)
        if said["format"] != FORMAT or said["complete"] is not True:
            raise ValueError("it is no complete report")
        if not said["constants"]:
            raise ValueError("check 10 measured nothing")
        device, measured = said["device"], said["constants"]
        values = {name: float(measured[name]) for name in MEASURED_RANGES}
        name, memory, like = str(device["name"])[:80], float(device["memory"]), GPUS[device["like"]]
    except (OSError, OverflowError, ValueError, TypeError, LookupError) as error:
        raise UserError(f"{path}: {' '.join(str(error).split())[:150]}; {allowed}") from None
    within = all(low <= values[key] <= high for key, (low, high) in MEASURED_RANGES.items())
    if not (within and math.isfinite(memory) and 1e9 <= memory <= 1e12):
        raise UserError(f"{path}: a number is outside of what a GPU can have; {allowed}")
    return like._replace(name=name, memory=memory, note=f"constants measured, {path}", **values)


def named_device(device: str, gpu: str | None, threads: int = 0) -> Device:
    """Return the machine of a run: the CPU, the GPU of a given name, the present GPU, or the smallest known GPU where
    none is present."""
    if device == "cpu":
        return _cpu(threads)
    if gpu is not None:
        return known_gpu(gpu)
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
    """Return the GPU that torch sees, with its free memory and the speed of its kind, or of an A100-40 for another
    kind; None without a GPU."""
    try:
        import torch

        if not torch.cuda.is_available():
            return None
        properties = torch.cuda.get_device_properties(device)
        free = _free(torch.cuda, device, properties)
    except (ImportError, RuntimeError, AssertionError):
        return None
    like = similar_gpu(properties.name, properties.total_memory)
    note = f"{free / 1e9:.1f} of {properties.total_memory / 1e9:.1f} GB are free" + (
        "" if like else "; its speed is not known: times are those of an A100-40"
    )
    return (like or GPUS["A100-40"])._replace(name=properties.name, memory=float(free), note=note)


def _free(cuda: Any, device: str, properties: Any) -> float:
    """Return the free bytes of a GPU, from the driver's own library where it works. Asking CUDA makes the process hold
    half a gigabyte as long as it lives, and a GPU in exclusive compute mode then accepts no other process."""
    with suppress(Exception):  # no nvidia-ml-py, or names of devices that it does not know
        if "MIG" not in properties.name:
            return properties.total_memory - cuda.device_memory_used(device)
    return cuda.mem_get_info(device)[0]


def similar_gpu(name: str, memory: int) -> Device | None:
    """Return the known GPU that matches a device's name and memory best, or None for another kind."""
    alike = [gpu for gpu in GPUS.values() if gpu.name.split("-")[0] in name]
    return min(alike, key=lambda gpu: abs(gpu.memory - memory), default=None)
