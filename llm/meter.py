"""Measure seconds and peak memory of the phases of a run."""

import ctypes
import resource
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import torch

from rftlab.llm.config import PHASES
from rftlab.shared.plumbing.errors import UserError

LITTLE = 64 << 20
"""Bytes of freed memory that a process keeps."""
_STATUS, _RESET = Path("/proc/self/status"), Path("/proc/self/clear_refs")


class Meter:
    """Sums seconds by phase, and keeps the largest memory of each phase until it is read."""

    def __init__(self, device: str):
        """Set up the meter for a device: its memory is measured, or that of the process on a CPU."""
        self.device = torch.device(device)
        self.clear()

    def clear(self) -> None:
        """Set all seconds and peaks to 0."""
        self.seconds, self.peak = dict.fromkeys(PHASES, 0.0), dict.fromkeys(PHASES, 0.0)

    @contextmanager
    def phase(self, name: str):
        """Count the time and memory of the block as phase `name`."""
        reset_peak(self.device)
        began = time.perf_counter()
        try:
            with within_memory(name):
                yield
        finally:
            if self.device.type == "cuda":
                torch.cuda.synchronize(self.device)
            self.seconds[name] += time.perf_counter() - began
            self.peak[name] = max(self.peak[name], peak_megabytes(self.device))

    def columns(self) -> dict[str, float]:
        """Return `seconds_<phase>` and `peak_mb_<phase>` since the last `clear`."""
        return {f"seconds_{name}": self.seconds[name] for name in PHASES} | {
            f"peak_mb_{name}": self.peak[name] for name in PHASES
        }


@contextmanager
def within_memory(what: str) -> Iterator[None]:
    """Raise UserError, one line that says what to do, where the block does not fit into memory."""
    try:
        yield
    except RuntimeError as error:
        if isinstance(error, torch.OutOfMemoryError) or "can't allocate memory" in str(error):
            said = " ".join(str(error).split())[:200]
            advice = (
                "`rftlab train --dry-run` with the same flags shows what needs it, and the smallest change that fits"
            )
            raise UserError(
                f"{what}: out of memory: {said}; {advice}; finished rounds up to the last checkpoint are kept"
            ) from None
        raise


def reset_peak(device: torch.device) -> None:
    """Reset the peak, where the system can; elsewhere a phase's peak includes earlier phases."""
    if device.type == "cuda":
        torch.cuda.reset_peak_memory_stats(device)
        return
    try:
        _RESET.write_text("5")
    except OSError:
        return


def peak_megabytes(device: torch.device) -> float:
    """Return the largest memory since `reset_peak` in MB: of the accelerator, or resident memory of the process."""
    if device.type == "cuda":
        return torch.cuda.max_memory_allocated(device) / 1e6
    try:
        line = next(line for line in _STATUS.read_text().splitlines() if line.startswith("VmHWM"))
        return int(line.split()[1]) * 1024 / 1e6
    except (OSError, StopIteration):
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 / 1e6


class _Heap(ctypes.Structure):
    """The fields of glibc's `mallinfo2`."""

    _fields_ = (("others", ctypes.c_size_t * 8), ("free", ctypes.c_size_t), ("top", ctypes.c_size_t))


def trim_heap() -> None:
    """Return memory that this process freed to the system, where its C library can; a later phase can then use it in
    blocks of other sizes.

    Small amounts are kept, because allocating them again would take too long in a round of a small model.
    """
    library = ctypes.CDLL(None)
    if hasattr(library, "mallinfo2"):
        library.mallinfo2.restype = _Heap
        if library.mallinfo2().free < LITTLE:
            return
    if hasattr(library, "malloc_trim"):
        library.malloc_trim(0)
