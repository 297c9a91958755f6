"""Says, as a skipped test, that the tests of the trainer were left out; and that they are all known to the rule that
leaves them out."""

import ast
from pathlib import Path

import pytest

from tests.conftest import NO_TORCH, collect_ignore

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


def imports_torch(path: Path, seen: frozenset[Path] = frozenset()) -> bool:
    """Whether a test module imports torch at its top, directly or through a helper beside it."""
    names = set()
    for node in ast.parse(path.read_text()).body:
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            names |= {node.module} | {f"{node.module}.{alias.name}" for alias in node.names}
    helpers = {ROOT / f"{name.replace('.', '/')}.py" for name in names if name.startswith("tests.")}
    return "torch" in names or any(imports_torch(helper, seen | {path}) for helper in helpers - seen if helper.exists())


def test_every_test_that_imports_torch_is_left_out_where_it_is_missing():
    need = {path.stem.removeprefix("test_") for path in Path(__file__).parent.rglob("test_*.py") if imports_torch(path)}
    assert need and not need & set(NO_TORCH)


def test_pins_leave_what_vllm_wants_on_a_gpu():
    """`make pins` runs where vLLM's wheel for a CPU is installed, which wants other versions."""
    lines = (ROOT / "constraints.txt").read_text().splitlines()[1:]
    pins = {name.lower().replace("-", "_"): version for name, _, version in (line.partition("==") for line in lines)}
    wanted = {name.replace("-", "_"): version for name, version in CUDA_WHEEL.items()}
    assert {name: pins[name] for name in pins.keys() & wanted.keys()}.items() <= wanted.items() and "torch" in pins
