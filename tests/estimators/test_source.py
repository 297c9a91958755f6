"""The identity of a custom function: every way in which it may become another one."""

import importlib
import os
import subprocess
import sys

import pytest

from rftlab.shared.custom.identity import SESSION, source_sha256
from tests.support.estimators.vectors import ROOT

HEAD = "import numpy as np\n"
F = "def f(rewards):\n    return {}\n"
FRAME = "import pandas as pd\nT = pd.DataFrame({'a': range(1000)})\n"
CASES = {
    "a helper below": (F.format("g(rewards)") + "def g(r):\n    return r * 1\n", "r * 1"),
    "a constant below": (F.format("rewards * K") + "K = 1\n", "K = 1"),
    "a module that is imported": ("import other\n" + F.format("rewards * other.FACTOR"), ""),
    "a name from a module": ("from other import FACTOR\n" + F.format("rewards * FACTOR"), ""),
    "an import in the function": ("def f(r):\n    from other import FACTOR\n    return r * FACTOR\n", ""),
    "an import that only acts": ("import other\n" + F.format("rewards"), ""),
    "an import of an import": ("import middle\n" + F.format("middle.g(rewards)"), ""),
    "an attribute of a function": (F.format("rewards * f.k") + "f.k = 1\n", "f.k = 1"),
    "a class attribute from outside": (
        "class A:\n    k = 0\n" + F.format("rewards * A.k") + "setattr(A, 'k', 1)\n",
        "'k', 1",
    ),
    "one of two lambdas on a line": ("a, f = lambda r: r * 2, lambda r: r * 1\n", "r * 1"),
    "a subclass of float": ("class X(float):\n    pass\nx = X(1)\n" + F.format("rewards * x"), "X(1)"),
    "a table of scipy": (
        "from scipy.interpolate import interp1d\nt = interp1d([0, 1], [0, 1])\n" + F.format("t(rewards)"),
        "[0, 1])\n",
    ),
    "a partial": ("import functools\ndef g(r, k):\n    return r * k\nf = functools.partial(g, k=1)\n", "k=1"),
    "a closure": ("def make(k):\n    return lambda r: r * k\nf = make(1)\n", "make(1)"),
    "a name that shadows a module": ("import math\nmath = 1\n" + F.format("rewards * math"), "math = 1"),
    "a function of numba": (
        "import numba\n@numba.njit\ndef g(r):\n    return r * 1\n@numba.njit\ndef f(r):\n    return g(r)\n",
        "r * 1",
    ),
    "a cached function": (
        "import functools\n@functools.lru_cache\ndef g():\n    return 1\n" + F.format("rewards * g()"),
        "return 1",
    ),
    "a patched module": (F.format("np.sort(rewards)") + "np.extra = 1\n", "np.extra = 1"),
    "a file that is read at import": (
        "from pathlib import Path\nK = float((Path(__file__).parent / 'k.txt').read_text())\n"
        + F.format("rewards * K"),
        "",
    ),
    "an instance": (
        "class A:\n    def __init__(self, k):\n        self.k = k\n"
        "    def __call__(self, r):\n        return r * self.k\nf = A(1)\n",
        "A(1)",
    ),
    "a dataclass and a property": (
        "from dataclasses import dataclass\n@dataclass\nclass A:\n    k: int = 1\n    @property\n    def two(self):\n"
        "        return self.k * 1\na = A()\n" + F.format("rewards * a.two"),
        "self.k * 1",
    ),
    "a global that is changed later": (
        "K = [5]\n" + F.format("rewards * K[0]") + "def later():\n    K[0] = 1\nlater()\n",
        "K[0] = 1",
    ),
    "a number of a large array": ("T = np.zeros(5000)\nT[2500] = 1\n" + F.format("rewards + T"), "= 1"),
    "a number of a table": (FRAME + "T.loc[500, 'a'] = 1\n" + F.format("rewards + T.a[3]"), "= 1"),
    "a label of a table": ("import pandas as pd\nT = pd.Series({'1': 5})\n" + F.format("rewards + T[0]"), "'1'"),
    "a slot": ("class A:\n    __slots__ = ('k',)\na = A()\na.k = 1\n" + F.format("rewards + a.k"), "k = 1"),
    "what a method reads": (
        "K = 1\nclass A:\n    def g(self):\n        return K\n" + F.format("rewards + A().g()"),
        "K = 1",
    ),
    "a base class elsewhere": ("import other\nclass A(other.B):\n    pass\n" + F.format("rewards + A.k"), ""),
    "a default": ("K = 1\ndef f(r, k=K):\n    return r * k\n", "K = 1"),
    "a class made by a call": ("A = type('A', (), {'k': 1})\n" + F.format("rewards * A.k"), "'k': 1"),
}
"""A file, and what of it changes: from 1 to 2; where nothing is named, the modules that it imports change."""
SHOW = """
import sys
sys.path.insert(0, sys.argv[1])
from rftlab.shared.custom.identity import source_sha256
import mine
print(source_sha256(mine.f))
"""


def identity(folder, **variables):
    """As a new process finds it."""
    environment = {k: v for k, v in os.environ.items() if k != SESSION} | {"PYTHONPATH": str(ROOT)} | variables
    command = [sys.executable, "-B", "-c", SHOW, str(folder)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=1200, env=environment)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip(), done.stderr


def written(folder, text, factor=1):
    for name, own in (
        ("mine", HEAD + text),
        ("other", f"FACTOR = {factor}\nclass B:\n    k = {factor}\n"),
        ("middle", "import other\ndef g(r):\n    return r\n"),
    ):
        (folder / f"{name}.py").write_text(own)
    (folder / "k.txt").write_text(str(factor))


@pytest.mark.parametrize("case", CASES)
def test_what_changes_a_function_changes_its_identity(case, tmp_path, monkeypatch):
    text, old = CASES[case]
    assert not old or text.count(old) == 1
    changed = (text.replace(old, old.replace("1", "2")), 1) if old else (text, 2)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    found = []
    for own, factor in ((text, 1), (text, 1), changed):
        written(tmp_path, own, factor)
        for name in ("mine", "other", "middle"):
            sys.modules.pop(name, None)
        importlib.invalidate_caches()
        found.append(source_sha256(importlib.import_module("mine").f))
        vars(sys.modules["numpy"]).pop("extra", None)
    assert found[0] == found[1] != found[2]


def test_a_new_process_finds_the_same(tmp_path):
    written(tmp_path, "".join(text for text, *_ in CASES.values()) + "sets = {'a', 'b', 'c'}\n" + F.format("(sets, A)"))
    (first, said), (second, _) = identity(tmp_path), identity(tmp_path)
    assert first == second and said == ""


OPAQUE = {
    "an open file": ("import sys\nt = sys.stdin\n" + F.format("t.x"), "TextIOWrapper"),
    "a lock": ("import threading\nt = threading.Lock()\n" + F.format("t.x"), "lock"),
    "a program in a text": ("def f(r):\n    return eval('r')\n", "eval in f"),
    "a module by its name": (
        "import importlib\ndef f(r):\n    return importlib.import_module('other')\n",
        "import_module",
    ),
    "a file that is read when called": ("def f(r):\n    return np.loadtxt('k.txt') * r\n", "loadtxt in f"),
    "a generator": ("t = (i for i in range(3))\n" + F.format("next(t)"), "generator"),
}


@pytest.mark.parametrize("case", OPAQUE)
def test_what_cannot_be_followed_is_of_one_session(case, tmp_path):
    """Other processes of that session agree, and a line says why."""
    text, said = OPAQUE[case]
    written(tmp_path, text)
    (first, line), (second, _) = identity(tmp_path), identity(tmp_path)
    assert first != second
    assert line.startswith("rftlab: a function: ") and said in line and line.count("\n") == 1
    assert identity(tmp_path, **{SESSION: "a"})[0] == identity(tmp_path, **{SESSION: "a"})[0]
