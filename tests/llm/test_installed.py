"""Says, as a skipped test, that the tests of the trainer were left out; and that the pins fit vLLM on a GPU too."""

from pathlib import Path

import pytest

from tests.conftest import collect_ignore

ROOT = Path(__file__).resolve().parents[2]
CUDA_WHEEL = {
    "apache-tvm-ffi": "0.1.11",
    "compressed-tensors": "0.17.0",
    "depyf": "0.20.0",
    "lark": "1.2.2",
    "lm-format-enforcer": "0.11.3",
    "numba": "0.65.0",
    "outlines_core": "0.2.14",
    "torch": "2.13.0",
    "torchaudio": "2.11.0",
    "torchvision": "0.28.0",
    "xgrammar": "0.2.8",
}
"""What vLLM 0.32.0's wheel for CUDA wants exactly (its METADATA)."""


def test_the_trainer_is_tested():
    if collect_ignore:
        pytest.skip(
            "the tests of the trainer need the extra llm: make test-llm, or pip install '.[llm]' in rftlab's folder"
        )


def test_pins_leave_what_vllm_wants_on_a_gpu():
    """`make pins` runs where vLLM's wheel for a CPU is installed, which wants other versions."""
    lines = (ROOT / "constraints.txt").read_text().splitlines()[1:]
    pins = {name.lower().replace("-", "_"): version for name, _, version in (line.partition("==") for line in lines)}
    wanted = {name.replace("-", "_"): version for name, version in CUDA_WHEEL.items()}
    assert {name: pins[name] for name in pins.keys() & wanted.keys()}.items() <= wanted.items() and "torch" in pins
