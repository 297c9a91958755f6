"""Who may import whom: shared <- sim, shared <- llm, all of them <- studies; torch only in llm, seaborn only in the files that draw."""

import ast
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path

import pytest

from sim.config import MOST_ARMS
from sim.simd import LANES

ROOT = Path(__file__).resolve().parent.parent
PACKAGES = ("shared", "sim", "llm", "studies")
ALLOWED = {"shared": {"shared"}, "sim": {"shared", "sim"}, "llm": {"shared", "llm"}, "studies": set(PACKAGES)}
PURE = {"numpy", "numba", "llvmlite"}
DRAWING = (
    "studies/figures.py",
    "studies/league_figure.py",
    "studies/theory_figures.py",
    "studies/bridge/compare_figures.py",
    "studies/bridge/forecast_figures.py",
)
CONFINED = {
    "torch": ("llm/",),
    "transformers": ("llm/",),
    "safetensors": ("llm/",),
    "vllm": ("llm/",),
    "peft": ("llm/",),
    "datasets": ("llm/",),
    "math_verify": ("llm/",),
    "ray": ("studies/ray_runner.py",),
    "seaborn": DRAWING,
    "matplotlib": DRAWING,
}


def imports_of(source: str) -> set[str]:
    """Top-level names of everything that a module imports, inside functions too."""
    found = set()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            found |= {alias.name.split(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.level == 0:
            found.add(node.module.split(".")[0])
    return found


def violations(path: str, source: str) -> list[str]:
    """What a file imports and may not."""
    package, found = path.split("/")[0], imports_of(source)
    bad = [name for name in found & set(PACKAGES) if name not in ALLOWED[package]]
    bad += [name for name in found & set(CONFINED) if not path.startswith(CONFINED[name])]
    if package == "shared":
        bad += [name for name in found - PURE - {"shared"} if name not in sys.stdlib_module_names]
    return bad


def files():
    return [path for package in PACKAGES for path in sorted((ROOT / package).rglob("*.py"))]


@pytest.mark.parametrize("path", files(), ids=lambda path: str(path.relative_to(ROOT)))
def test_imports_follow_the_rule(path):
    assert violations(path.relative_to(ROOT).as_posix(), path.read_text()) == []


@pytest.mark.parametrize(
    ("path", "source"),
    [
        ("shared/x.py", "import sim"),
        ("shared/x.py", "import scipy"),
        ("sim/x.py", "from llm.trainer import train"),
        ("llm/x.py", "def f():\n    import sim.run"),
        ("studies/x.py", "import torch"),
        ("studies/x.py", "import seaborn as sns"),
    ],
)
def test_the_rule_can_be_broken(path, source):
    assert violations(path, source)


def test_the_simulator_path_never_imports_torch():
    extra = ("torch", "transformers", "safetensors", "datasets", "math_verify", "vllm", "peft", "ray")
    modules = "studies.cli_commands, studies.cli_train, studies.league_run, studies.report, studies.bridge.pilot_run, studies.bridge.pilot_show, sim.run"
    code = f"import sys, {modules}; print([m for m in {extra} if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=ROOT)
    assert done.stdout.strip() == "[]"


def test_configurations_are_read_without_a_compiler():
    code = "import sys, shared.design, sim.config; print([m for m in ('numba', 'numpy', 'pandas') if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=ROOT)
    assert done.stdout.strip() == "[]"


def test_as_many_arms_are_allowed_as_vectors_have_lanes():
    assert MOST_ARMS == LANES


def test_a_configuration_of_the_trainer_is_read_without_torch():
    code = "import sys, llm.config, llm.verify; print([m for m in ('torch', 'transformers') if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=ROOT)
    assert done.stdout.strip() == "[]"


def numba_core(source: str) -> list[str]:
    """What a file takes from inside numba, inside functions too, or names."""
    found = []
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            found += [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.level == 0:
            found += [f"{node.module}.{alias.name}" for alias in node.names]
        elif isinstance(node, ast.Attribute):
            found.append(ast.unparse(node))
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            found.append(node.value)
    return [name for name in found if f"{name}.".startswith("numba.core.")]


def test_one_file_takes_what_is_inside_numba():
    assert {path.relative_to(ROOT).as_posix() for path in files() if numba_core(path.read_text())} == {"shared/numba_parts.py"}


@pytest.mark.parametrize(
    "source",
    [
        "import numba.core",
        "import numba.core.types as t",
        "from numba import core",
        "def f():\n    from numba.core.cgutils import pack_array",
        "numba.core.cpu.x()",
        "__import__('numba.core.cpu')",
    ],
)
def test_what_is_inside_numba_is_found(source):
    assert numba_core(source)


HIDE = {
    "CPUDispatcher": "import numba.core.registry as place; del place.CPUDispatcher",
    "cgutils": "import numba.core; sys.modules['numba.core.cgutils'] = None; del numba.core.cgutils",
    "_nrt": "from numba.core.cpu import CPUTargetOptions; place = next(kind for kind in CPUTargetOptions.__mro__ if '_nrt' in vars(kind)); del place._nrt",
}


@pytest.mark.parametrize(
    ("hidden", "said"), [("CPUDispatcher", "numba.core.registry.CPUDispatcher"), ("cgutils", "numba.core.cgutils"), ("_nrt", "the option _nrt of njit")]
)
def test_a_numba_without_a_part_is_one_line(hidden, said):
    code = f"import sys, numba; {HIDE[hidden]}; from studies import terminal; sys.exit(terminal.guarded(lambda: __import__('shared.jit')))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT)
    line = f"rftlab: numba {version('numba')} lacks {said}, which compiled code needs; allowed: the version in constraints.txt\n"
    assert (done.returncode, done.stderr) == (2, line)


@pytest.mark.parametrize(
    ("path", "ours"), [("llm/folders.py", {"shared"}), ("llm/writing.py", {"llm", "shared"}), ("studies/shadow.py", set()), ("shared/errors.py", set())]
)
def test_what_comes_first_needs_the_standard_library(path, ours):
    assert imports_of((ROOT / path).read_text()) - sys.stdlib_module_names == ours


@pytest.mark.parametrize("path", files(), ids=lambda path: str(path.relative_to(ROOT)))
def test_files_stay_short(path):
    assert len(path.read_text().splitlines()) <= 320
