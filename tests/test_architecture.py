"""Who may import whom: shared <- sim, shared <- llm, all of them <- studies; torch only in llm, seaborn only in the
files that draw."""

import ast
import subprocess
import sys
from graphlib import CycleError, TopologicalSorter
from importlib.metadata import version
from pathlib import Path

import pytest

from rftlab.sim.config import MAX_ARMS
from rftlab.sim.lanes.simd import LANES

ROOT = Path(__file__).resolve().parent.parent
PACKAGES = ("shared", "sim", "llm", "studies")
ALLOWED = {"shared": {"shared"}, "sim": {"shared", "sim"}, "llm": {"shared", "llm"}, "studies": set(PACKAGES)}
WHOLE = "rftlab"
PURE = {"numpy", "numba", "llvmlite"}
FRAMES = ("shared/curve.py",)
"""Where `shared` may ask for pandas: results as data frames."""
DRAWING = ("studies/report/draw.py",)
PALETTES = (*DRAWING, "studies/report/chart.py")
CONFINED = {
    **dict.fromkeys(("torch", "transformers", "safetensors", "vllm", "peft", "datasets", "math_verify"), ("llm/",)),
    "verl": ("studies/integrations/verl.py",),
    "trl": ("studies/integrations/trl", "studies/integrations/alarms.py"),
    "prime_rl": ("studies/integrations/prime_rl.py",),
    "slime": ("studies/integrations/slime.py",),
    "tinker": ("studies/integrations/tinker.py",),
    **dict.fromkeys(("tensorboard", "wandb"), ("studies/readers/formats/stores.py",)),
    "nicegui": tuple(f"studies/explore/{name}.py" for name in ("page", "panels", "heat_panel", "server")),
    **dict.fromkeys(("fastapi", "uvicorn"), ("studies/explore/server.py",)),
    "seaborn": PALETTES,
    "matplotlib": DRAWING,
}


def imported(source: str) -> list[str]:
    """Dotted names of everything that a module imports, inside functions too."""
    names = []
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            names += [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.level == 0:
            names += [f"{node.module}.{alias.name}" for alias in node.names]
    return names


def imports_of(source: str) -> set[str]:
    """Top-level names of what a module imports; `rftlab.sim` and so on for ours."""
    return {".".join(name.split(".")[: 2 if name.split(".")[0] == WHOLE else 1]) for name in imported(source)}


def violations(path: str, source: str) -> list[str]:
    """What a file imports and may not."""
    package, found = path.split("/")[0], imports_of(source)
    bad = [
        name for name in found if name.startswith(WHOLE) and name.removeprefix(f"{WHOLE}.") not in ALLOWED[package]
    ] + bare(path, source)
    bad += [name for name in found & set(CONFINED) if not path.startswith(CONFINED[name])]
    if package == "shared":
        known = PURE | ({"pandas"} if path in FRAMES else set())
        bad += [name for name in found - known - {"rftlab.shared"} if name not in sys.stdlib_module_names]
    return bad


def bare(path: str, source: str) -> list[str]:
    """Folders of ours that are imported as packages of their own, which works in a checkout alone."""
    return sorted(imports_of(source) & set(PACKAGES))


def files():
    return [path for package in PACKAGES for path in sorted((ROOT / package).rglob("*.py"))]


HOUSE = (
    ("shared",),
    ("sim", "llm", "studies/console"),
    ("studies/data",),
    ("studies/readers", "studies/report"),
    ("studies/analysis", "studies/theory"),
    ("studies/integrations",),
    ("studies/forecast",),
    ("studies/estimators", "studies/explore"),
    ("studies/cli",),
)
"""The packages and the rooms of `studies`, from the ground up: docs/architecture.md draws them."""
FLOORS = (
    ("shared",),
    ("sim/config", "sim/lanes", "llm/rewards", "llm/probe_config", "llm/probe_run", "llm/tracking", "llm/random",
     "llm/truncation", "llm/losses"),
    ("sim/world", "llm/tasks"),
    ("sim/policy", "sim/state", "llm/config"),
    ("sim/round", "sim/environments", "llm/policy", "llm/meter", "llm/stored"),
    ("sim/setup", "llm/budget", "llm/engines"),
    ("sim/run", "llm/models"),
    ("llm/training",),
    ("llm/train", "llm/export"),
    ("llm/probe",),
    ("studies/console", "studies/data/paper"),
    ("studies/data/runs",),
    ("studies/data/results",),
    ("studies/readers", "studies/report"),
    ("studies/analysis/diagnose",),
    ("studies/integrations",),
    ("studies/analysis/public", "studies/theory"),
    ("studies/analysis/source", "studies/analysis/followup"),
    ("studies/analysis/imported",),
    ("studies/analysis/compare", "studies/forecast/pilot"),
    ("studies/forecast/law",),
    ("studies/forecast", "studies/forecast/signal"),
    ("studies/forecast/advise", "studies/forecast/score", "studies/estimators/suite"),
    ("studies/estimators", "studies/forecast/checkup"),
    ("studies/explore",),
    ("studies/cli",),
)  # fmt: skip
"""Folders and the files beside them, in the order in which they may import each other: itself and lower floors."""
MAX_FILES = 18
"""In a folder, without its `__init__.py`; `shared`, whose parts are one room, has more."""


def floor_of(floors: tuple[tuple[str, ...], ...], name: str) -> tuple[str, int]:
    """The room of a module by its dotted name, and the room's floor: the longest path among the floors that the
    module lies below, or ("", -1)."""
    path = name.removeprefix(f"{WHOLE}.").replace(".", "/")
    rooms = [(room, floor) for floor, level in enumerate(floors) for room in level if f"{path}/".startswith(f"{room}/")]
    return max(rooms, key=lambda one: len(one[0]), default=("", -1))


def upward(path: str, source: str) -> list[str]:
    """Modules of ours that a file imports from another room of its own floor or from above."""
    names = {one for one in imported(source) if one.startswith(f"{WHOLE}.")}
    bad = set()
    for floors in (HOUSE, FLOORS):
        room, floor = floor_of(floors, path.removesuffix(".py"))
        others = {one: floor_of(floors, one) for one in names}
        bad |= {one for one, (other, its) in others.items() if other not in ("", room) and its >= floor}
    return sorted(bad)


def circle(graph: dict[str, set[str]]) -> list[str]:
    """Modules of a graph of imports that reach each other; [] where none do."""
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        return error.args[1]
    return []


def test_no_modules_of_shared_import_each_other():
    """Inside functions neither."""
    places = {path: WHOLE + "." + ".".join(path.relative_to(ROOT).with_suffix("").parts) for path in files()}
    paths = {name.removesuffix(".__init__"): path for path, name in places.items() if ".shared." in name}
    graph = {}
    for name, path in paths.items():
        names = set(imported(path.read_text()))
        graph[name] = (names | {one.rpartition(".")[0] for one in names}) & paths.keys() - {name}
    assert len(graph) > 50 and circle(graph) == []
    graph["rftlab.shared.custom.registry"].add("rftlab.shared.estimator")
    assert len(circle(graph)) > 2


def test_every_room_is_on_a_floor_and_none_is_crowded():
    for floors in (HOUSE, FLOORS):
        modules = [path.relative_to(ROOT).with_suffix("").as_posix() for path in files() if path.name != "__init__.py"]
        rooms = {floor_of(floors, name)[0] for name in modules}
        assert rooms == {room for floor in floors for room in floor}
    counts = {room: len(list((ROOT / room).glob("[!_]*.py"))) for floor in FLOORS for room in floor if room != "shared"}
    assert max(counts.values()) <= MAX_FILES


def lambdas_of(path: str, source: str) -> list[str]:
    """Defaults of arguments and fields that are lambdas, which a signature shows as such."""
    defaults = []
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.FunctionDef):
            defaults += [(node.name, default) for default in [*node.args.defaults, *node.args.kw_defaults]]
        elif isinstance(node, ast.ClassDef):
            defaults += [(node.name, part.value) for part in node.body if isinstance(part, ast.AnnAssign)]
    return [name for name, default in defaults if isinstance(default, ast.Lambda)]


@pytest.mark.parametrize(
    ("modules", "heavy"),
    [
        ("shared.design sim.config", "numba numpy pandas"),
        ("llm.config llm.rewards.verify", "torch transformers"),
        ("studies.estimators.show", "torch pandas matplotlib rftlab.sim rftlab.studies.theory"),
        (
            "sim.run studies.cli.commands studies.estimators.suite.run studies.report.report "
            "studies.forecast.pilot.run studies.forecast.pilot.show studies.forecast.signal.show "
            "studies.forecast.law.show studies.forecast.advise.show",
            "torch transformers safetensors datasets math_verify vllm peft nicegui",
        ),
    ],
    ids=["configurations", "the trainer's configurations", "cards", "the simulator's path"],
)
def test_what_is_imported_first_is_light(modules, heavy):
    ours = ", ".join(f"rftlab.{module}" for module in modules.split())
    code = f"import sys, {ours}; print([m for m in {heavy.split()} if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=ROOT)
    assert done.stdout.strip() == "[]"


def test_as_many_arms_are_allowed_as_vectors_have_lanes():
    assert MAX_ARMS == LANES


def numba_core(path: str, source: str) -> list[str]:
    """What a file takes from inside numba, inside functions too, or names; one file may."""
    found = imported(source)
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Attribute):
            found.append(ast.unparse(node))
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            found.append(node.value)
    return [name for name in found if f"{name}.".startswith("numba.core.") and path != NUMBA_PARTS]


def imported_tests(path: str, source: str) -> list[str]:
    """Test modules that a file imports; what several share is in tests/support."""
    return [name for name in imported(source) if name.startswith("tests.") and ".test_" in name]


def excess(path: str, source: str) -> list[str]:
    """Lines of a file beyond the 400th."""
    return source.splitlines()[400:]


NUMBA_PARTS = "shared/plumbing/numba_parts.py"
RULES = {
    violations: [
        ("sim/x.py", "from shared import sums"),
        ("studies/x.py", "import sim.run"),
        ("shared/x.py", "from rftlab import sim"),
        ("shared/x.py", "import scipy"),
        ("sim/x.py", "from rftlab.llm.training.trainer import train"),
        ("llm/x.py", "def f():\n    import rftlab.sim.run"),
        ("studies/x.py", "import torch"),
        ("studies/x.py", "import seaborn as sns"),
    ],
    upward: [
        ("studies/data/runs/store.py", "from rftlab.studies.report import figures"),
        ("studies/theory/check.py", "import rftlab.studies.estimators.suite.tasks"),
        ("studies/report/report.py", "def f():\n    from rftlab.studies.cli.common import Common"),
        ("studies/analysis/compare/compare.py", "from rftlab.studies.forecast.law.curve import Curve"),
        ("studies/analysis/public/store.py", "from rftlab.studies.analysis.imported.page import x"),
        ("sim/lanes/random.py", "from rftlab.sim.state import Plan"),
    ],
    lambdas_of: [
        ("x.py", "def f(x=lambda: 0): ..."),
        ("x.py", "def f(*, x=lambda: 0): ..."),
        ("x.py", "class A:\n    x: int = lambda: 0"),
    ],
    numba_core: [
        ("x.py", (ROOT / NUMBA_PARTS).read_text()),
        ("x.py", "import numba.core"),
        ("x.py", "import numba.core.types as t"),
        ("x.py", "from numba import core"),
        ("x.py", "def f():\n    from numba.core.cgutils import pack_array"),
        ("x.py", "numba.core.cpu.x()"),
        ("x.py", "__import__('numba.core.cpu')"),
    ],
    excess: [("x.py", "\n" * 401)],
    bare: [("tests/x.py", "from shared import sums")],
    imported_tests: [("tests/x.py", "from tests.llm.test_lock import holder")],
}
"""Each rule of files, with files that break it; the last two are those of tests."""


@pytest.mark.parametrize("rule", RULES)
def test_files_keep_every_rule_and_what_breaks_it_is_found(rule):
    paths = (ROOT / "tests").rglob("*.py") if rule in (bare, imported_tests) else files()
    found = {path: rule(path.relative_to(ROOT).as_posix(), path.read_text()) for path in paths}
    assert {path: offences for path, offences in found.items() if offences} == {}
    assert [(path, source) for path, source in RULES[rule] if not rule(path, source)] == []


HIDE = {
    "numba.core.registry.CPUDispatcher": "import numba.core.registry as place; del place.CPUDispatcher",
    "numba.core.cgutils": "import numba.core; sys.modules['numba.core.cgutils'] = None; del numba.core.cgutils",
    "the option _nrt of njit": (
        "from numba.core.cpu import CPUTargetOptions; place = next(kind for kind in "
        "CPUTargetOptions.__mro__ if '_nrt' in vars(kind)); del place._nrt"
    ),
}


@pytest.mark.parametrize("lost", HIDE)
def test_a_numba_without_a_part_is_one_line(lost):
    code = (
        f"import sys, numba; {HIDE[lost]}; from rftlab.studies.console import terminal; "
        "sys.exit(terminal.guarded(lambda: __import__('rftlab.shared.plumbing.jit')))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT)
    said = f"lacks {lost}, which compiled code needs; allowed: the version in constraints.txt\n"
    assert (done.returncode, done.stderr) == (2, f"rftlab: numba {version('numba')} {said}")


def test_what_comes_first_needs_the_standard_library():
    for name, ours in (("folders", {"rftlab.shared"}), ("files", {"rftlab.shared"}), ("errors", set())):
        source = (ROOT / "shared" / "plumbing" / f"{name}.py").read_text()
        assert imports_of(source) - sys.stdlib_module_names == ours, name


def test_types_have_names_of_their_own():
    """A reader who searches for a type finds one."""
    homes: dict[str, list[str]] = {}
    for path in files():
        for node in ast.parse(path.read_text()).body:
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                homes.setdefault(node.name, []).append(str(path.relative_to(ROOT)))
    assert len(homes) > 100 and {name: places for name, places in homes.items() if len(places) > 1} == {}
