"""Environments that keep a process, ours and the peers' libraries alike, to an instruction set that is not the best
of this machine."""

import numpy as np
from llvmlite import binding

ONE_THREAD = {
    "OPENBLAS_NUM_THREADS": "1",
    "OMP_NUM_THREADS": "1",
    "XLA_FLAGS": "--xla_cpu_multi_thread_eigen=false intra_op_parallelism_threads=1",
}
_HASWELL = (
    "+64bit,+avx,+avx2,+bmi,+bmi2,+cmov,+crc32,+cx16,+cx8,+f16c,+fma,+fxsr,+lzcnt,+mmx,+movbe,"
    "+pclmul,+popcnt,+sahf,+sse,+sse2,+sse3,+sse4.1,+sse4.2,+ssse3"
)
NUMBA = {
    "avx2": {"NUMBA_CPU_NAME": "haswell", "NUMBA_CPU_FEATURES": _HASWELL},
    "plain": {"NUMBA_CPU_NAME": "x86-64", "NUMBA_CPU_FEATURES": "+64bit,+cx8,+fxsr,+mmx,+sse,+sse2"},
}
"""Targets of numba: AVX2 with fused multiply-add, as of 2013, and what every x86-64 has."""


def numpy_beyond_avx2() -> str:
    """What NumPy must leave out to be kept to AVX2."""
    dispatched = np._core._multiarray_umath.__cpu_dispatch__
    return " ".join(name for name in dispatched if "512" in name or name == "X86_V4")


def only_avx2() -> dict[str, str]:
    """numba, NumPy, OpenBLAS, PyTorch, oneDNN and the code that XLA makes, kept to AVX2."""
    return {
        **NUMBA["avx2"],
        "NPY_DISABLE_CPU_FEATURES": numpy_beyond_avx2(),
        "OPENBLAS_CORETYPE": "Haswell",
        "ATEN_CPU_CAPABILITY": "avx2",
        "ONEDNN_MAX_CPU_ISA": "AVX2",
        "XLA_FLAGS": ONE_THREAD["XLA_FLAGS"] + " --xla_cpu_max_isa=AVX2",
    }


def can_run(target: str) -> bool:
    """Whether this machine has what a target needs."""
    mine = binding.get_host_cpu_features()
    return mine.get("avx2", False) and mine.get("fma", False) if target == "avx2" else mine.get("sse2", False)
