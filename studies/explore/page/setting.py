"""What all pages of a server share."""

from dataclasses import dataclass
from pathlib import Path

from rftlab.studies.explore.chart import Axis, ShownCurve
from rftlab.studies.explore.jobs import Bench


@dataclass
class Setting:
    """Threads that simulate, and where real runs are."""

    bench: Bench
    results: Path | None = None
    """Results folder that was named."""
    toured: bool = False
    """Whether somebody was shown around."""

    @staticmethod
    def file_of(curves: list[ShownCurve], axis: Axis, kind: str) -> bytes:
        """What a chart shows as a file; the figures are imported when the first is asked for."""
        from rftlab.studies.explore.export import file_of

        return file_of(curves, axis, kind)
