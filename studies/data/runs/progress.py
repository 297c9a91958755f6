"""What a command shows while it runs: a bar with the time left, the latest result, remarks."""

from contextlib import contextmanager

from rich.console import Console
from rich.progress import (
    BarColumn,
    SpinnerColumn,
    TaskProgressColumn,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)

from rftlab.studies.console.bar import Bar
from rftlab.studies.data.runs.points import Point
from rftlab.studies.data.runs.runner import StudyCallbacks
from rftlab.studies.data.runs.store import Stored

STARTING = "compiling and starting"


@contextmanager
def progress_of(console: Console, todo: list[Point], quiet: bool):
    """A `Report` whose bar counts estimated seconds of work; remarks are printed even where the bar is off."""
    columns = (
        SpinnerColumn(),
        TextColumn("{task.description}"),
        BarColumn(),
        TaskProgressColumn(),
        TimeElapsedColumn(),
        TimeRemainingColumn(),
    )
    with Bar(console, quiet or not todo, *columns) as bar:
        task = bar.add_task(STARTING, total=sum(point.cost for point in todo))
        left = {name: sum(point.pair == name for point in todo) for name in dict.fromkeys(point.pair for point in todo)}

        def finished(point: Point, outcome: Stored) -> None:
            left[point.pair] -= 1
            value = outcome.curve.test_pass_at_1[-1]
            result = (
                f"diverged after {outcome.diverged_at} rounds"
                if outcome.diverged_at is not None
                else f"test Pass@1 {value:.3f}"
            )
            bar.update(task, description=f"{point.name}: {result}")
            if left[point.pair] == 0 and not quiet:
                console.print(f"[dim]{point.pair}: all runs finished")

        def advanced(seconds: float) -> None:
            if bar.tasks[0].description == STARTING:
                bar.update(task, description=todo[0].name if len(todo) == 1 else f"{len(todo)} runs")
            bar.advance(task, seconds)

        yield StudyCallbacks(
            finished,
            advanced,
            lambda text: bar.update(task, description=text),
            lambda text: console.print(text, style="yellow", markup=False),
        )


@contextmanager
def steps_of(console: Console, description: str, quiet: bool):
    """A callable `step(done, total)` that moves a bar."""
    columns = (SpinnerColumn(), TextColumn(description), BarColumn(), TimeRemainingColumn())
    with Bar(console, quiet, *columns) as bar:
        task = bar.add_task(description, total=None)
        yield lambda done, total: bar.update(task, completed=done, total=total)
