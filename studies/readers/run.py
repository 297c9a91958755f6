"""A run read from a log: as its format gives it (`RawRun`), and in our terms (`ImportedRun`)."""

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
"""Of a run."""
COLUMNS = ("run", "round", "split", "task", "metric", "value", "n", "source_step", "source")
"""Of the long form: see docs/import.md."""


@dataclass(frozen=True)
class KnownDesign:
    """The known part of a run's design; None where it could not."""

    prompts: int | None = None
    """B: prompts of a round."""
    rollouts: int | None = None
    """K: responses to each prompt that are trained on."""
    updates_per_round: int | None = None
    """Optimiser updates between two samplings."""
    learning_rate: float | None = None
    """Of the policy; the highest where it changes."""
    advantage: str | None = None
    """raw, group_mean, group_zscore, batch_zscore, leave_one_out, gae; another name is the source's own."""
    loss: str | None = None
    """The surrogate and how tokens are averaged, in the source's own words."""
    kl_coefficient: float | None = None
    temperature: float | None = None
    response_limit: int | None = None
    """Tokens."""
    precision: str | None = None
    """Of the weights that the optimizer changes: bf16, where it keeps no copy of more digits, or fp32. Few logs say."""
    adapter_rank: int | None = None
    """The rank of the low-rank adapters that are trained; 0 where all weights are. Few logs say."""
    trained_share: float | None = None
    """The part of the parameters that is trained; below 1 where adapters are. Few logs say."""
    model: str | None = None
    assumed: tuple[str, ...] = ()
    """Sentences: what was taken from a library's defaults, or worked out from the log itself."""

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
    """Values of one metric as they were logged: step, value, and the line, row or record that held it. Packed,
    because a log may hold millions: arrays that grow, or numpy's, which columns of a table may share."""

    steps: Any = field(default_factory=lambda: array("i"))
    values: Any = field(default_factory=lambda: array("d"))
    places: Any = field(default_factory=lambda: array("I"))

    def __len__(self) -> int:
        return len(self.steps)

    def between(self, start: float, end: float) -> "Series":
        """The values at places from `start` on, and before `end`."""
        import numpy as np

        inside = (np.asarray(self.places) >= start) & (np.asarray(self.places) < end)
        return Series(*(np.asarray(column)[inside] for column in (self.steps, self.values, self.places)))


class MetricSeries(NamedTuple):
    """One metric of a run in our terms, in the order of its rounds."""

    split: str
    task: str
    metric: str
    source: str
    """The metric's name in the log."""
    rounds: "np.ndarray"
    values: "np.ndarray"
    n: "np.ndarray | None"
    """Numbers behind each value; None where that is not known of any, nan where not of one."""
    steps: "np.ndarray"
    """As the log prints them; -1 where it prints none."""


def arrange(pieces: Iterable[MetricSeries]) -> tuple[MetricSeries, ...]:
    """Return the metrics of a run as it has them: tests first, then by split, task, metric and source."""
    return tuple(sorted(pieces, key=lambda piece: (piece.split != "test", *piece[:4])))


class GroupOutcomes(NamedTuple):
    """How many responses of each group were right; groups with one outcome are counted together (n,)."""

    split: str
    rounds: tuple[int, ...]
    """As pieces have them; steps of the log in a raw run."""
    responses: tuple[int, ...]
    """To the prompt of the group: K."""
    right: tuple[int, ...]
    groups: tuple[int, ...]
    """With this outcome."""


@dataclass
class RawRun:
    """The content of one run as a format read it, before any of it is understood."""

    name: str
    """The run's own name; "" where the file has none."""
    format: str
    series: dict[str, Series] = field(default_factory=dict)
    """By the metric's name in the source."""
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
    """Metrics that the user named: from the source's name to [test.|train.]metric of ours."""
    unprinted: set[tuple[str, int]] = field(default_factory=set)
    """Metrics and steps of values beside which the log prints no step."""
    notes: list[str] = field(default_factory=list)
    """Repairs, in words."""
    pieces: tuple[MetricSeries, ...] = ()
    """In place of series, of a source that is in our terms already."""
    design: KnownDesign = KnownDesign()
    """The design that such a source states; for another, facts beside it where its configuration is silent."""
    outcomes: tuple[GroupOutcomes, ...] = ()
    """Where the log has a row a response."""
    whole: bool = True
    """Whether `config` is all of the run's own, and not a part of it or what the user gave for every run."""
    stated: dict[str, Any] | None = None
    """The facts that columns state of the run except its seed, where they state that too."""
    repeats: str = ""
    """As in `ImportedRun`, where the source says so itself."""

    def add(self, name: str, step: int, value: float, place: int) -> None:
        """One more value of a metric."""
        series = self.series.get(name)
        if series is None:
            check(len(self.series) < MAX_METRICS, f"more than {MAX_METRICS} metrics; allowed: at most as many")
            series = self.series[name] = Series()
        series.steps.append(step)
        series.values.append(value)
        series.places.append(place)


@dataclass(frozen=True)
class ImportedRun:
    """A run in our terms."""

    name: str
    format: str
    tool: str
    sources: tuple[tuple[str, str], ...]
    """Name and SHA-256 of each file that it was read from."""
    design: KnownDesign
    pieces: tuple[MetricSeries, ...]
    """Ordered by split (test first), task, metric and source; a metric without a name of ours has its source's, and
    the split ""."""
    notes: tuple[str, ...] = ()
    """Repairs and readings of what was ambiguous, in words."""
    outcomes: tuple[GroupOutcomes, ...] = ()
    """Right responses of the groups, a split each, where the log has a row a response."""
    repeats: str = ""
    """Equal texts of runs that repeat each other: their configurations, or the columns that state design and seed, are
    equal but for the seed, or the user says so. "" where nothing tells."""

    @cached_property
    def curves(self) -> "pd.DataFrame":
        """The values in long form, `COLUMNS`: 26 bytes a value, so that it is made where it is asked for."""
        from rftlab.studies.readers.store import make_frame

        return make_frame(self.name, self.pieces)

    @property
    def rounds(self) -> int:
        """The last round that has a value."""
        return max((int(piece.rounds.max()) for piece in self.pieces if len(piece.rounds)), default=0)

    def _repr_html_(self) -> str:
        """Its known facts, for notebooks."""
        facts = {name: getattr(self.design, name) for name in FACTS}
        known = [(name.replace("_", " "), value) for name, value in facts.items() if value is not None]
        unknown = ", ".join(self.design.unknown).replace("_", " ")
        values = ", ".join(dict.fromkeys(f"{piece.split} {piece.metric}".strip() for piece in self.pieces))
        rows = [("rounds", self.rounds), ("values", values), *known, ("unknown", unknown)]
        return table(f"{self.name} ({self.format})", rows + [("note", note) for note in self.notes])
