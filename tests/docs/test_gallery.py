"""The gallery shows every figure that the tool draws, each below a command that makes it."""

import ast
import re

from tests.support.docs.command_lines import lines_of
from tests.support.estimators.vectors import ROOT

GALLERY = ROOT / "docs" / "lab" / "gallery.md"
PICTURES = ROOT / "docs" / "gallery"
SHOWN = {
    "compare/level_curves": "compare-tradeoff-curves",
    "compare/scatter": "compare-agreement",
    "compare/level_tradeoff": "compare-tradeoff-tradeoff",
    "forecast/grid_figure": "forecast-sign97",
    "score/score_figure": "forecast-scores",
    "imported/curves_figure": "runs-curves",
    "imported/ends_figure": "runs-ends",
    "imported/training_figure": "runs-training-1",
    "suite/suite_profile": "suite",
    "public/credit_figure": "public-credit",
    "public/pods_figure": "public-pods",
    "report/agreement_figure": "agreement",
    "report/learning_curves": "tradeoff-curves",
    "report/overview": "overview",
    "report/tradeoff": "tradeoff-endpoints",
    "theory/plateau_figure": "theory-plateau",
    "theory/regret_figure": "theory-regret",
    "theory/replay_figure": "theory-replay",
    "theory/variance_figure": "theory-variance",
    "theory/weights_figure": "theory-weights",
}
"""Picture of each function that draws."""


def drawing(source: str) -> list[str]:
    """Public functions of a file that draw."""
    found = [node for node in ast.parse(source).body if isinstance(node, ast.FunctionDef) and node.returns is not None]
    return [node.name for node in found if ast.unparse(node.returns) == "Drawn" and not node.name.startswith("_")]


def test_every_function_that_draws_has_a_picture():
    files = (ROOT / "studies").rglob("*.py")
    assert {f"{path.parent.name}/{name}" for path in files for name in drawing(path.read_text())} == set(SHOWN)
    text = GALLERY.read_text()
    assert [name for name, picture in SHOWN.items() if not re.search(rf"[(/]{picture}\.png\)", text)] == []


def test_pictures_have_words_and_stay_small():
    found = re.findall(r"!\[([^\]]*)\]\(([^)]+)\)", GALLERY.read_text())
    assert len(found) > len(SHOWN) and all(len(words) > 20 for words, _ in found)
    files = {path.name for path in PICTURES.iterdir()}
    assert files == {name.removeprefix("../gallery/") for _, name in found if name.startswith("../gallery/")}
    assert all((PICTURES / name).stat().st_size < 150_000 for name in files)


def test_every_part_names_a_command():
    parts = GALLERY.read_text().split("\n## ")[1:]
    assert len(parts) > 8
    assert [part.splitlines()[0] for part in parts if not lines_of(part) and "`rftlab" not in part] == []


def test_functions_that_draw_are_found():
    assert drawing("def f() -> Drawn: ...\ndef _g() -> Drawn: ...\ndef h() -> int: ...\ndef i(): ...") == ["f"]
