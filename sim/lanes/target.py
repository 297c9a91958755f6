"""The processor that kernels are compiled for: what of it decides how many values a loop keeps in registers.

Results are the same bits on all of them (tests/sim/test_targets.py): a target decides which loop is outside, never the
order of a sum.
"""

from typing import NamedTuple

from llvmlite import binding
from numba import config


class Target(NamedTuple):
    """A kind of processor."""

    name: str
    feature: str
    """What LLVM calls the instructions that it must have."""
    lanes: int
    """float32 of a vector register."""
    registers: int
    """Vector registers."""


TARGETS = (
    Target("AVX-512", "+avx512f", lanes=16, registers=32),
    Target("AVX2", "+avx2", lanes=8, registers=16),
    Target("NEON", "+neon", lanes=4, registers=32),
    Target("plain", "", lanes=4, registers=16),
)
"""The first of which a processor has the feature is its target."""


def features() -> str:
    """Features for which numba compiles, as LLVM lists them: NUMBA_CPU_FEATURES, or those of this machine."""
    if config.CPU_FEATURES is not None:
        return config.CPU_FEATURES
    mine = binding.get_host_cpu_features()
    return ",".join(
        f"+{name}" for name, present in mine.items() if present and (config.ENABLE_AVX or not name.startswith("avx"))
    )


def target_of(features: str) -> Target:
    """The target with these features, a list with commas."""
    return next(target for target in TARGETS if not target.feature or target.feature in features.split(","))


TARGET = target_of(features())
