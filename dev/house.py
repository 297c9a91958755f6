"""Count lines, files, classes, shared names, fragments and drawing modules of the repository.

`make house` prints the table. Each row has a limit; a row above its limit is marked, and the exit status is then 1.
"""

import ast
import re
import sys
from collections import Counter, defaultdict
from collections.abc import Container, Iterator
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parent.parent
PRODUCT = ("shared", "sim", "llm", "studies", "rftlab")


class Row(NamedTuple):
    """A count, its limit, and examples of what is counted."""

    name: str
    value: int
    most: int
    examples: str = ""


class Module(NamedTuple):
    """A parsed file of the product."""

    path: str
    lines: int
    tree: ast.Module

    @property
    def name(self) -> str:
        """Dotted name under which other modules import it."""
        return "rftlab." + self.path.removesuffix(".py").removesuffix("/__init__").replace("/", ".")


def read_modules(folders: tuple[str, ...]) -> list[Module]:
    """Return every Python file below the folders; links are not followed."""
    modules = []
    for folder in folders:
        for path in sorted((ROOT / folder).rglob("*.py")):
            relative = path.relative_to(ROOT).as_posix()
            if "__pycache__" not in relative and not (ROOT / relative).parent.is_symlink():
                text = path.read_text(encoding="utf-8")
                modules.append(Module(relative, text.count("\n"), ast.parse(text)))
    return modules


def imported_names(module: Module, known: Container[str] = ()) -> Iterator[str]:
    """Yield every dotted name that a module imports, also inside functions and for types alone.

    known: names of modules. Where all imports from a package are among them, the package itself is left out."""
    for node in ast.walk(module.tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            names = [f"{node.module}.{alias.name}" for alias in node.names]
            yield from names
            if not all(name in known for name in names):
                yield node.module


def importers(modules: list[Module]) -> dict[str, set[str]]:
    """Return the paths that import each module of ours, by the module's dotted name."""
    known, readers = {m.name for m in modules}, defaultdict(set)
    for module in modules:
        for name in imported_names(module, known):
            if name in known and name != module.name:
                readers[name].add(module.path)
    return readers


def shared_names(modules: list[Module]) -> dict[str, int]:
    """Return the public functions at module level whose name occurs in several modules, with the number of modules."""
    counts = Counter(
        name
        for module in modules
        for name in {node.name for node in module.tree.body if isinstance(node, ast.FunctionDef)}
        if not name.startswith("_")
    )
    return {name: n for name, n in counts.most_common() if n > 1}


def importing(modules: list[Module], library: str) -> list[str]:
    """Return the files that import a library."""
    return [m.path for m in modules if any(n == library or n.startswith(library + ".") for n in imported_names(m))]


def matching(modules: list[Module], pattern: str, outside: str = "") -> list[str]:
    """Return the files whose text matches a pattern, except those below one folder."""
    return [
        m.path
        for m in modules
        if not (outside and m.path.startswith(outside)) and re.search(pattern, (ROOT / m.path).read_text("utf-8"))
    ]


def rows() -> list[Row]:
    """Return every count with its limit."""
    product = read_modules(PRODUCT)
    tests = read_modules(("tests",))
    readers, shared = importers(product), shared_names(product)
    functions = [n.name for m in product for n in ast.walk(m.tree) if isinstance(n, ast.FunctionDef)]
    of = [name for name in functions if name.endswith("_of")]
    found = [m.path for m in product if any(isinstance(n, ast.Name) and n.id == "found" for n in ast.walk(m.tree))]
    fragments = [m.path for m in product if 2 < m.lines < 60 and len(readers.get(m.name, ())) == 1]
    crowded = Counter(m.path.rpartition("/")[0] for m in product)
    many = [f"{folder} {n}" for folder, n in crowded.most_common() if n > 13]
    long = [m.path for m in product if m.lines > 400]
    tables, drawing = importing(product, "rich.table"), importing(product, "matplotlib")
    t_intervals = matching(product, r"\b(stdtrit|t\.ppf|t\.interval)\b", outside="studies/theory/")

    def total(modules: list[Module], folder: str = "") -> int:
        return sum(m.lines for m in modules if m.path.startswith(folder))

    return [
        Row("lines of the product", total(product), 42_000),
        Row("lines of studies/", total(product, "studies/"), 25_000),
        Row("lines of tests/", total(tests), 30_000),
        Row("files of the product", len(product), 360),
        Row("classes", sum(isinstance(n, ast.ClassDef) for m in product for n in ast.walk(m.tree)), 300),
        Row("public functions that share a name", len(shared), 40, _some([f"{k} {v}" for k, v in shared.items()])),
        Row("functions named *_of", len(of), 30, _some(of)),
        Row("files that bind a variable 'found'", len(found), 0, _some(found)),
        Row("files that import rich.table", len(tables), 1, _some(tables)),
        Row("files that import matplotlib", len(drawing), 3, _some(drawing)),
        Row("files with a t interval, outside theory", len(t_intervals), 1, _some(t_intervals)),
        Row("files under 60 lines with one reader", len(fragments), 0, _some(fragments)),
        Row("files above 400 lines", len(long), 0, _some(long)),
        Row("folders with more than 12 files", len(many), 4, _some(many)),
    ]


def _some(names: list[str]) -> str:
    return ", ".join(names[:4]) + (", ..." if len(names) > 4 else "")


def main() -> int:
    """Print the table; return 1 where a figure is above its limit."""
    table = rows()
    for row in table:
        mark = "over" if row.value > row.most else "    "
        print(f"{row.value:7,} of {row.most:6,}  {mark}  {row.name}{f': {row.examples}' if row.examples else ''}")
    return int(any(row.value > row.most for row in table))


if __name__ == "__main__":
    sys.exit(main())
