"""MLflow's file store: mlruns/EXPERIMENT/RUN/metrics/NAME, a line a value: milliseconds, value, step.

A folder of any of these levels is read; a run has the name that meta.yaml or its tag gives it.
"""

import re
from pathlib import Path

from rftlab.shared.plumbing.errors import check
from rftlab.shared.plumbing.folders import FILE, kind_of
from rftlab.studies.readers.run import RawRun
from rftlab.studies.readers.text import lines_of, number, opened_text, step_of

FORMAT = "MLflow"
MAX_FILES, LARGEST_NAME = 20_000, 1 << 16
_NAME = re.compile(r"^run_name: *['\"]?([^'\"\n]{1,200})", re.MULTILINE)
_PLACES = ("metrics", "*/metrics", "*/*/metrics", "mlruns/*/*/metrics")


def runs_in(folder: Path) -> list[Path]:
    """Folders of runs at or below one; [] where it holds none."""
    found = [path.parent for place in _PLACES for path in sorted(folder.glob(place)) if path.is_dir()]
    return [path for path in found if not path.is_symlink() and kind_of(path / "meta.yaml") == FILE]


def read_folder(folders: list[Path]) -> tuple[list[RawRun], list[Path]]:
    """The runs of these folders, and the files they came from. Raises UserError where they hold no values."""
    runs, files = [], []
    for folder in folders:
        run = RawRun(_name(folder), FORMAT)
        own = [path for path in sorted((folder / "metrics").rglob("*")) if kind_of(path) == FILE]
        check(len(own) <= MAX_FILES, f"{folder} has {len(own)} metrics; allowed: at most {MAX_FILES}")
        for path in own:
            _add(run, path, path.relative_to(folder / "metrics").as_posix())
        run.one_track = False
        runs += [run] if run.series else []
        files += own if run.series else []
    check(bool(runs), f"{folders[0]} holds no metrics with steps; allowed: MLflow's folders of runs")
    return runs, files


def _add(run: RawRun, path: Path, name: str) -> None:
    odd = 0
    with opened_text(path, "utf-8") as stream:
        for place, line, _ in lines_of(stream):
            parts = line.split()
            value, step = (number(parts[1]), step_of(parts[2])) if len(parts) >= 3 else (None, None)
            if value is None or step is None:
                odd += bool(parts)
            else:
                run.add(name, step, value, place)
    run.notes += [f"{name}: {odd} lines without time, value and step left out"] if odd else []


def _name(folder: Path) -> str:
    tag = folder / "tags" / "mlflow.runName"
    for place in (tag, folder / "meta.yaml"):
        if kind_of(place) == FILE and place.stat().st_size <= LARGEST_NAME:
            text = place.read_text(encoding="utf-8", errors="replace")
            found = text.strip() if place == tag else next(iter(_NAME.findall(text)), "")
            if name := found.partition("\n")[0][:200].strip():
                return name
    return folder.resolve().name
