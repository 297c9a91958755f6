"""Read lines that a training loop prints: a step, and names with numbers.

    Epoch:[1/1](4/9751), Reward: -1.6958, KL_ref: 0.0211, Avg Response Len: 82.88
    [step 10] reward=0.928 exact=0.734 policy_loss=-0.0089 kl=0.0017
    ===== Step 10/500 =====
    Starting validation at step 10...
      Accuracy: 0.3047
    Training Results:
      Avg Reward: 0.3203
    Step 3:
    {'reward/avg_raw_reward': '0.4531',
    │ ppo_actor/task_reward/avg │ 4.5310e-01 │ ppo_actor/entropy/avg │ 3.1000e-01 │

No convention says which lines are meant. Lines that recur are taken: those of one kind have the same names, one of
them a metric's, and their steps do not fall. Steps of a solution that a model wrote begin anew in each response.
Progress bars are left out, because they count questions as often as updates. A dictionary of dictionaries is the
configuration; it is parsed as a literal, never evaluated. The headlines are NeMo-RL's (nemo_rl/algorithms/grpo.py),
the dictionary is SkyRL's (skyrl/train/utils/tracking.py), the grid AReaL's (areal/utils/printing.py).
"""

import re
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from rftlab.shared.plumbing.errors import few, plain
from rftlab.studies.readers.designs.values import literal_values
from rftlab.studies.readers.formats.tables import has_numbers
from rftlab.studies.readers.names import SCORES, is_test_metric, split_of, translate_metric
from rftlab.studies.readers.run import RawRun
from rftlab.studies.readers.text import BORDERS, LARGEST_STEP, Head, encoding_note, read_lines, read_number

FORMAT = "printed lines"
LONGEST, LONGEST_BLOCK, LONGEST_CONFIG = 4000, 400, 1 << 18
"""Largest numbers of characters of a line, of lines below a headline, and of characters of a configuration."""
FEWEST, MAX_KINDS = 3, 500
"""Fewest lines that make a kind, and largest number of kinds that are kept."""
_COUNTERS = ("step", "iteration", "iter", "update", "round", "rollout", "batch", "episode", "epoch")
"""Words before a step, of which the first that a line has is taken."""
_ANY = "eval"
"""Counter of evaluations that are numbered as `eval 5: {...}`."""
_STEP = re.compile(
    rf"(?<![\w/.-])(?:(?:global|train|training|grpo|ppo|rl)[ _])?"
    rf"({'|'.join(_COUNTERS)}|{_ANY}(?= \d{{1,9}}: {{))s?[\"']?[ _]?[:=#\[(]{{0,2}} {{0,12}}"
    r"(\d{1,9})(?: ?/ {0,8}(\d{1,9}))?(?![\w%/]|\.\d)",
    re.IGNORECASE,
)
_IN_EPOCH = re.compile(
    r"\bepoch:? ?\[?(\d{1,6})(?:/\d{1,6})?\]?"
    r"(?:[,:| -]{0,3}(?:(?:step|batch|iter)[: ]{1,2})?[\[(]? {0,6}(\d{1,9})/(\d{1,9}))?",
    re.IGNORECASE,
)
"""Epoch, with the step in it and the number of these steps where they follow."""
_BAR = re.compile(r"\d/\d{1,9} \[\d\d:\d\d")
_PAIR = re.compile(
    r"(?<![\w/.=@%-])(?P<name>[A-Za-z][\w@/.%-]{0,60}(?: [A-Za-z(][\w@/.()%-]{0,60}){0,3})"
    r"(?:['\"]? ?[:=] {0,8}['\"]?| {1,8}(?=[-+]?\d*\.\d))"
    r"(?P<value>(?:[-+]?(?:\d+(?:\.\d*)?|\.\d+)(?:[eE][-+]?\d{1,3})?|nan|inf)%?)(?:/(?P<of>\d{1,9}))?"
    r"(?: tokens|[A-Za-z]{1,3}\b)?(?![\w:/]|\.\w|,\d{3}(?!\d))"
)
"""Name and number, between them a colon, an equals sign, or a space alone before a decimal. Times of the day are
none."""
_COLOUR = re.compile(r"\x1b\[[\d;]*m")
_LOGGER = re.compile(
    r"\b(?:INFO|DEBUG|WARNING|ERROR|SUCCESS)\b|\(\w{1,40} pid=\d{1,9}[^)]{0,60}\)|\b[\w/]{1,80}\.py:\d{1,9}\b"
    r"|(?<![\w.:])[\w.]{1,80}:\w{1,40}:\d{1,9} - "
)
"""Level of a logger, Ray's process and a place in the code, which hold no numbers of the run."""
_HEADLINE = re.compile(r"[=_~\u2500-\u257f-]{3}")
"""Decoration that makes a line with a step alone a headline. A step with its total, or of an evaluation, needs none."""
_CELLS = re.compile(r"\s*\u2502(?: +[A-Za-z][\w@/.%-]{0,120} +\u2502 +[-+.\w]{1,24} +\u2502)+[\s\u2502]*")
"""Row of a grid, in which each name has a number beside it."""
_WORDS = re.compile(r"[A-Za-z]+")


@dataclass
class _Kind:
    """Lines with the same names."""

    counter: str
    is_test: bool
    is_told: bool
    """Whether the step stands in the line, or in the headline above it."""
    run: RawRun
    lines: int = 0
    falls: int = 0
    last: int = -1
    apart: int = 0
    """Number of lines at one step with other values than the line before, as where each response has one."""

    def steps(self) -> set[int]:
        """Return the different steps of its lines."""
        return set(next(iter(self.run.series.values())).steps)


class _Lines:
    """Reader of lines one after another, because the headline before a line may give it its step."""

    def __init__(self) -> None:
        self.kinds: dict[tuple, _Kind] = {}
        self.headline: tuple[str, int, bool] | None = None
        self.latest: dict[str, int] = {}
        self.left, self.epoch, self.steps, self.before = 0, -1, (0, 0, 0), 0
        self.notes: list[str] = []
        self.config: dict[str, Any] | None = None
        self.open = ""
        self.opening: tuple[str, int, bool] | None = None

    def read(self, place: int, line: str) -> None:
        """Read a line, and keep its numbers by the kind of line."""
        if len(line) > LONGEST or _BAR.search(line):
            return
        line = _COLOUR.sub("", line)
        if self.config is None and (self.open or line.startswith("{'")):
            self.open += line
            if line.rstrip().endswith("}}") or len(self.open) > LONGEST_CONFIG:
                self.config, self.open = literal_values(self.open) if len(self.open) <= LONGEST_CONFIG else None, ""
        line = _without_grid(line)
        is_framed = line.lstrip().startswith(BORDERS)
        line = _LOGGER.sub("|", line)
        if self.opening is not None and line.lstrip("| ").startswith("{'"):
            self.headline, self.left = self.opening, LONGEST_BLOCK
        self.opening = None
        told, self.left = self._step(line), self.left - 1
        if told is None:
            if not is_framed:
                self._read_below(place, line)
            return
        counter, step, total, (start, end) = told
        if step > LARGEST_STEP:
            return
        pairs, rest = _pairs(f"{line[:start]}|{line[end:]}")
        is_test = counter == _ANY or _is_test(rest[0])
        if pairs:
            self.latest[counter] = step
            self._keep(place, counter, step, is_test, pairs)
        elif total or is_test or _HEADLINE.search(line):
            self.headline, self.left = (counter, step, is_test), LONGEST_BLOCK
        elif line[end:].strip() == ":":
            self.opening = counter, step, False

    def _read_below(self, place: int, line: str) -> None:
        """Keep the numbers of a line without a step. Below a headline they are of its step; those of an evaluation are
        of the step before it."""
        pairs, rest = _pairs(line)
        if self.headline is not None and self.left >= 0:
            if pairs and not any(map(str.isalnum, "".join(rest))):
                self._keep(place, *self.headline, pairs, below=True)
            elif not pairs and line.rstrip().endswith(":"):
                self.headline = *self.headline[:2], _is_test(line)
        elif pairs and (_is_test(rest[0]) or all(map(is_test_metric, pairs))) and any(map(is_score, pairs)):
            for counter in _COUNTERS:
                self._keep(place, counter, self.latest.get(counter, -1), True, pairs, is_told=False)

    def _step(self, line: str) -> tuple[str, int, bool, tuple[int, int]] | None:
        """Return the counter of a line, its step, whether its total is there, and its place; None where it has none."""
        in_epoch = _IN_EPOCH.search(line)
        if in_epoch and in_epoch[2]:
            epoch, step, total = map(int, in_epoch.groups())
            self.epoch = epoch if self.epoch < 0 else self.epoch
            return "step", max(0, epoch - self.epoch) * total + step, True, in_epoch.span()
        matches = list(_STEP.finditer(line))
        if not matches:
            return None
        counters = (*_COUNTERS, _ANY)
        match = min(matches, key=lambda match: (match[0][:6].lower() != "global", counters.index(match[1].lower())))
        counter, step = match[1].lower(), int(match[2])
        if in_epoch and counter != "epoch":
            step = self._step_of_run(int(in_epoch[1]), step)
        return counter, step, match[3] is not None, match.span()

    def _step_of_run(self, epoch: int, step: int) -> int:
        """Return the step of the run for a step of an epoch. Where steps begin anew with the epoch, those of the epochs
        before are added: as many as were printed, and the distance between two."""
        first, last, apart = self.steps
        if epoch == self.epoch + 1 and step <= first < last:
            self.before += last - first + apart
            self.notes = ["steps begin anew with each epoch: those of the epochs before are added"]
            first = step
        elif self.epoch < 0:
            first, last = step, step
        self.epoch, self.steps = epoch, (first, step, step - last if step > last else apart)
        return self.before + step

    def _keep(
        self,
        place: int,
        counter: str,
        step: int,
        is_test: bool,
        pairs: dict[str, float],
        below: bool = False,
        is_told: bool = True,
    ) -> None:
        """Add the numbers of a line, or of one below a headline, to those of its kind."""
        key = (counter, is_test, below, is_told, *pairs)
        if key not in self.kinds and len(self.kinds) >= MAX_KINDS:
            return
        kind = self.kinds.setdefault(key, _Kind(counter, is_test, is_told, RawRun("", FORMAT)))
        again = (below or not is_told) and step == kind.last and kind.lines > 0
        kind.lines, kind.falls, kind.last = kind.lines + 1, kind.falls + (step < kind.last), step
        kind.apart += again and list(pairs.values()) != [one.values[-1] for one in kind.run.series.values()]
        for name, value in pairs.items():
            kind.run.add(f"eval/{name}" if is_test and not is_test_metric(name) else name, step, value, place)

    def lasting(self) -> list[_Kind]:
        """Return the kinds of lines that are a run's: they have a metric and the counter of most lines, and recur at
        steps that hardly fall. An evaluation may be there once. Lines with another counter are taken where its steps
        are the same."""
        once_a_step = [kind for kind in self.kinds.values() if 2 * kind.apart < kind.lines]
        kinds = [kind for kind in once_a_step if any(map(_is_metric, kind.run.series))]
        steady = [kind for kind in kinds if len(kind.steps()) >= FEWEST and 10 * kind.falls <= kind.lines]
        lines = Counter[str]()
        for kind in steady:  # those with rewards outweigh those that have the loss of each update
            if kind.is_told and kind.counter != _ANY:
                lines[kind.counter] += kind.lines * (1000 if any(map(is_score, kind.run.series)) else 1)
        counter, last = max(lines, key=lines.__getitem__, default=""), max((kind.last for kind in steady), default=0)
        once = [kind for kind in kinds if kind.is_test and kind.lines < FEWEST and kind.last <= last]
        taken = [kind for kind in steady + once if kind.counter == counter]
        names = {name for kind in taken for name in kind.run.series}
        steps = set[int]().union(*(kind.steps() for kind in taken if kind.is_told))
        taken += [
            kind
            for kind in steady + once
            if kind.counter != counter
            and kind.is_told
            and not names & kind.run.series.keys()
            and (kind.counter == _ANY or kind.steps() == steps)
        ]
        tested = any(kind.is_told and any(map(is_test_metric, kind.run.series)) for kind in taken)
        return [kind for kind in taken if kind.is_told or not tested] if steps else []


def is_printed(head: Head) -> bool:
    """Whether the start of a file holds lines with steps and metrics that recur, and is no table, whose texts may hold
    such lines too."""
    return not has_numbers(head) and bool(_read(enumerate(head.lines, start=1)).lasting())


def read_printed_lines(head: Head, columns: dict[str, str]) -> list[RawRun]:
    """Read the run of a log."""
    run = RawRun(head.path.stem, FORMAT, notes=encoding_note(head.encoding))
    return [add_lines(run, ((place, line) for place, line, _ in read_lines(head)))]


def add_lines(run: RawRun, lines: Iterable[tuple[int, str]]) -> RawRun:
    """Add to a run what lines say that recur, each with its place, and return it; without numbers where none recur."""
    reading = _read(lines)
    kinds = reading.lasting()
    run.config, run.notes = run.config or reading.config, run.notes + reading.notes
    if kinds:
        names = few(list(dict.fromkeys(plain(name) for kind in kinds for name in kind.run.series)), 4)
        run.notes.append(f"no format says which lines count: taken are those with {kinds[0].counter} and {names}")
    first = min((min(kind.steps()) for kind in kinds if kind.is_told), default=0)
    if not all(kind.is_told for kind in kinds):
        run.notes.append(f"evaluations without a step are taken to be after the {kinds[0].counter} printed before them")
    for kind in kinds:
        for name, series in kind.run.series.items():
            for step, value, place in zip(series.steps, series.values, series.places, strict=True):
                if not kind.is_told:  # count finished rounds; step is -1 where none was printed before
                    step = step + (first == 0) if step >= 0 else 0
                    run.unprinted.add((name, step))
                run.add(name, step, value, place)
    return run


def _read(lines: Iterable[tuple[int, str]]) -> _Lines:
    reading = _Lines()
    for place, line in lines:
        reading.read(place, line)
    return reading


def _pairs(line: str) -> tuple[dict[str, float], list[str]]:
    """Return the numbers of a line by their names, and the texts before, between and after them."""
    pairs: dict[str, float] = {}
    rest, end = [], 0
    for match in _PAIR.finditer(line):
        rest.append(line[end : match.start()])
        end = match.end()
        value = read_number(match["value"])
        if value is not None:
            share = value / int(match["of"]) if match["of"] and int(match["of"]) else value
            pairs.setdefault(_name(match["name"].split()), share)
    return pairs, [*rest, line[end:]]


def _without_grid(line: str) -> str:
    """Return a row of a grid as names with numbers; another line as it is."""
    if not _CELLS.fullmatch(line):
        return line
    cells = [cell.strip() for cell in line.strip(" \n\u2502").split("\u2502")]
    return ", ".join(f"{name}: {value}" for name, value in zip(cells[::2], cells[1::2], strict=False))


def _name(words: list[str]) -> str:
    """Return the name of a metric of several words, with its split apart: `Eval accuracy` is Eval/accuracy."""
    split = f"{words[0]}/" if len(words) > 1 and split_of(words[0]) else ""
    return split + "_".join(words[1:] if split else words)


def _is_test(text: str) -> bool:
    """Whether words beside numbers say that they are of an evaluation."""
    return any(word.lower().startswith(("eval", "valid", "test")) for word in _WORDS.findall(text))


def _is_metric(name: str) -> bool:
    return translate_metric(name) is not None or name.lower().endswith("loss")


def is_score(name: str) -> bool:
    """Whether a metric of a log says how good responses are."""
    known = translate_metric(name)
    return known is not None and known.metric in ("score", *SCORES)
