"""Runs read from logs: as their format gives them (`RawRun`), and in rftlab's terms (`ImportedRun`)."""

from array import array
from collections.abc import Iterable
from dataclasses import dataclass, field, fields, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from rftlab.shared.plumbing.errors import check
from rftlab.shared.plumbing.notebook import table

if TYPE_CHECKING:
    import numpy as np
    import pandas as pd

Tool = Literal["verl", "trl", "rftlab", ""]
"""The tool whose conventions a log follows; "" where it is unknown."""
MAX_METRICS = 20_000
"""Largest number of metrics in a run."""
COLUMNS = ("run", "round", "split", "task", "metric", "value", "n", "source_step", "source")
"""Columns of the long form of imported runs (docs/import.md)."""


@dataclass(frozen=True)
class KnownDesign:
    """Known part of a run's design; a field is None where the log does not state it."""

    prompts: int | None = None
    """B: prompts of a round."""
    rollouts: int | None = None
    """K: responses to each prompt that are trained on."""
    updates_per_round: int | None = None
    """Optimiser updates between two samplings."""
    learning_rate: float | None = None
    """Learning rate of the policy; the highest where it changes."""
    advantage: str | None = None
    """Kind of advantage: raw, group_mean, group_zscore, batch_zscore, leave_one_out, gae, or the source's own name."""
    loss: str | None = None
    """Surrogate and aggregation of tokens, in the source's own words."""
    kl_coefficient: float | None = None
    temperature: float | None = None
    response_limit: int | None = None
    """Largest number of tokens in a response."""
    precision: str | None = None
    """Precision of the weights that the optimizer changes: fp32, or bf16 without a copy of more digits. Few logs state
    it."""
    adapter_rank: int | None = None
    """Rank of the low-rank adapters that are trained; 0 where all weights are. Few logs state it."""
    trained_share: float | None = None
    """Share of the parameters that is trained; below 1 with adapters. Few logs state it."""
    model: str | None = None
    assumed: tuple[str, ...] = ()
    """Sentences on what was taken from a library's defaults, or worked out from the log itself."""

    @property
    def has_adapters(self) -> bool:
        """Whether low-rank adapters are known to be trained."""
        return bool(self.adapter_rank or (self.trained_share or 1) < 1)

    @property
    def unknown(self) -> tuple[str, ...]:
        """Fields that the log does not state, without those that few logs state."""
        return tuple(f.name for f in fields(self) if getattr(self, f.name) is None and f.name not in _RARE)


_RARE = ("precision", "adapter_rank", "trained_share")
FACTS = tuple(f.name for f in fields(KnownDesign) if f.name != "assumed")


def merge_designs(first: KnownDesign, second: KnownDesign) -> KnownDesign:
    """Return the facts of `first`, and those of `second` where `first` has none."""
    taken = {
        name: value for name in FACTS if getattr(first, name) is None and (value := getattr(second, name)) is not None
    }
    assumed = tuple(text for text in second.assumed if taken and text not in first.assumed)
    return replace(first, **taken, assumed=first.assumed + assumed)


@dataclass(slots=True)
class Series:
    """Values of one metric as they were logged: step, value, and the line, row or record that held it. They are packed,
    because a log may hold millions, in arrays that grow, or in NumPy's, which columns of a table may share."""

    steps: Any = field(default_factory=lambda: array("i"))
    values: Any = field(default_factory=lambda: array("d"))
    places: Any = field(default_factory=lambda: array("I"))

    def __len__(self) -> int:
        return len(self.steps)

    def between(self, start: float, end: float) -> "Series":
        """Return the values at places from `start` on, and before `end`."""
        import numpy as np

        inside = (np.asarray(self.places) >= start) & (np.asarray(self.places) < end)
        return Series(*(np.asarray(column)[inside] for column in (self.steps, self.values, self.places)))


class MetricSeries(NamedTuple):
    """Values of one metric of a run in rftlab's terms, in the order of its rounds."""

    split: str
    task: str
    metric: str
    source: str
    """The metric's name in the log."""
    rounds: "np.ndarray"
    values: "np.ndarray"
    n: "np.ndarray | None"
    """Number of values averaged in each one; None where that is known of none, nan where it is unknown of one."""
    steps: "np.ndarray"
    """Steps as the log prints them; -1 where it prints none."""


def arrange(pieces: Iterable[MetricSeries]) -> tuple[MetricSeries, ...]:
    """Return the metrics of a run in their order: those of tests first, then by split, task, metric and source."""
    return tuple(sorted(pieces, key=lambda piece: (piece.split != "test", *piece[:4])))


class GroupOutcomes(NamedTuple):
    """Number of groups (n,) by round, number of responses, and number of right responses."""

    split: str
    rounds: tuple[int, ...]
    """Rounds as in `MetricSeries`; in a raw run, steps of the log."""
    responses: tuple[int, ...]
    """Responses to the prompt of each group: K."""
    right: tuple[int, ...]
    groups: tuple[int, ...]
    """Number of groups with this outcome."""


@dataclass
class RawRun:
    """Run as a format read it, before its metrics are named and its steps become rounds."""

    name: str
    """The run's own name; "" where the file has none."""
    format: str
    series: dict[str, Series] = field(default_factory=dict)
    """Values by the metric's name in the source."""
    tool: Tool = ""
    config: dict[str, Any] | None = None
    """The run's configuration where the log or what lies beside it holds one, as plain values."""
    first_step: int | None = None
    """The step that the first round has, where the format says so."""
    one_track: bool = True
    """Whether the places of different series are in one order of time, as lines of a log are; not where a table has
    one metric after another."""
    place: str = "line"
    """The unit of `Series.places`: line, row, record."""
    aliases: dict[str, str] = field(default_factory=dict)
    """Metrics that the user named: from the source's name to rftlab's, [test.|train.]METRIC."""
    unprinted: set[tuple[str, int]] = field(default_factory=set)
    """Metrics and steps of values beside which the log prints no step."""
    notes: list[str] = field(default_factory=list)
    """Sentences on repairs."""
    pieces: tuple[MetricSeries, ...] = ()
    """Metrics in the place of `series`, from a source that is in rftlab's terms already."""
    design: KnownDesign = KnownDesign()
    """Design that such a source states; for others, facts beside the log that fill gaps of its configuration."""
    outcomes: tuple[GroupOutcomes, ...] = ()
    """Counts of right responses by group, where the log has a row for each response."""
    whole: bool = True
    """Whether `config` is the run's own and whole, rather than a part of it or what the user gave for every run."""
    stated: dict[str, Any] | None = None
    """Facts that columns state of the run without its seed; None where they do not state the seed too."""
    repeats: str = ""
    """Mark of repeats as in `ImportedRun`, where the source states one itself."""

    def add(self, name: str, step: int, value: float, place: int) -> None:
        """Add a value of a metric."""
        series = self.series.get(name)
        if series is None:
            check(len(self.series) < MAX_METRICS, f"more than {MAX_METRICS} metrics; allowed: at most as many")
            series = self.series[name] = Series()
        series.steps.append(step)
        series.values.append(value)
        series.places.append(place)


@dataclass(frozen=True)
class ImportedRun:
    """Run that was read from a log, in rftlab's terms."""

    name: str
    format: str
    tool: str
    sources: tuple[tuple[str, str], ...]
    """Name and SHA-256 of each file that it was read from."""
    design: KnownDesign
    pieces: tuple[MetricSeries, ...]
    """Metrics ordered by split (test first), task, metric and source; one that rftlab has no name for keeps its
    source's, and its split is ""."""
    notes: tuple[str, ...] = ()
    """Sentences on repairs and on how ambiguous values were read."""
    outcomes: tuple[GroupOutcomes, ...] = ()
    """Counts of right responses by group, an entry for each split, where the log has a row for each response."""
    repeats: str = ""
    """Text that runs share where they repeat each other: their configurations, or the columns that state design and
    seed, are equal but for the seed, or the user says so. "" where nothing tells."""

    @cached_property
    def curves(self) -> "pd.DataFrame":
        """Values in long form, with `COLUMNS`. It takes 26 bytes a value, so it is made only where it is asked for."""
        from rftlab.studies.readers.store import make_frame

        return make_frame(self.name, self.pieces)

    @property
    def rounds(self) -> int:
        """The last round that has a value."""
        return max((int(piece.rounds.max()) for piece in self.pieces if len(piece.rounds)), default=0)

    def _repr_html_(self) -> str:
        """Return the known facts of the run as HTML for notebooks."""
        facts = {name: getattr(self.design, name) for name in FACTS}
        known = [(name.replace("_", " "), value) for name, value in facts.items() if value is not None]
        unknown = ", ".join(self.design.unknown).replace("_", " ")
        values = ", ".join(dict.fromkeys(f"{piece.split} {piece.metric}".strip() for piece in self.pieces))
        rows = [("rounds", self.rounds), ("values", values), *known, ("unknown", unknown)]
        return table(f"{self.name} ({self.format})", rows + [("note", note) for note in self.notes])
