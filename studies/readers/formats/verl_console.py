"""Read verl's console log: lines `step:12 - critic/score/mean:0.5 - ..`, behind Ray's prefix, colour codes and progress
bars, among everything else.

verl prints its configuration before it starts, as a Python literal over many lines between which other processes write.
It is parsed as a literal, never evaluated. Without one, the overrides of the command line are taken.
"""

import re
from dataclasses import dataclass

from rftlab.studies.readers.designs.values import Unknown, as_word, literal_values, value_at
from rftlab.studies.readers.run import RawRun
from rftlab.studies.readers.text import LARGEST_STEP, Head, encoding_note, once, read_lines, read_number

FORMAT, PROJECT, TRAINING = "verl console", "rftlab", "-training"
"""Name of the format; verl's project and the end of the name of a set of training questions in runs of rftlab."""
_CODES = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]|[\x00-\x08\x0b-\x1a\x1c-\x1f\x7f]")
_STEP = re.compile(r"(?:^|\]|\bit/s|\bs/it)\s*step:(\d{1,12}) - (?=[^\s:]{1,200}(?:\([^)\s]{0,40}\))?:)")
LONGEST_STEP, CUT = 1 << 16, 1 << 12
"""Largest number of characters of a step line that may go on, and of a line in W&B's output.log, which is cut."""
_LONE = re.compile(r"[\d.:e)][\w./@:()+-]*")
"""Line that may be the rest of a number."""
_PREFIX = re.compile(r"\s{0,9}(\([^()]{0,200}pid=\d{1,9}[^()]{0,200}\)) ?")
_REPEATED = re.compile(r"\s{0,9}\[repeated \d{1,9}x across cluster\].*$")
_RECOGNISED = re.compile(
    r"step:\d{1,12} - [^\s:/]{1,100}/[^\s:]{1,300}:[-\dn]|'actor_rollout_ref':"
    r"|actor_rollout_ref\.[\w.]{1,100}=|verl\.trainer\.main_ppo"
)
_STEPS = re.compile(r"(?<![A-Za-z_/])step:([0-9]{1,12}) - ")
_VALIDATION = re.compile(r"(Initial|Final) validation metrics: *\{")
_SCORE = re.compile(r"""'([^']{1,300})'["']?\s*:[\s"']*(?:np\.\w+\()?([-+.\deEnaif]+)""")
_OVERRIDE = re.compile(
    r"(?:^|[\s\"'+])((?:data|actor_rollout_ref|algorithm|trainer|critic|reward_model)\.[\w.]{1,100})=([^\s\"'\\]{1,200})"
)
_OURS = re.compile(r"(.+-s\d{1,20})-[0-9a-f]{12}")
_SEEN = re.compile(rf"val-core/.+{TRAINING}/acc/mean@\d+")
_MAX, _BLOCKS = 1 << 18, 20
"""Largest number of characters of a configuration or of validation metrics, and of such blocks that are read."""
_TRIES, _PARSED = 40, 1 << 20
"""Largest number of lines removed from the end of a cut configuration, and of characters parsed in all attempts."""
_OF_TRAINING = ("actor/", "critic/", "timing", "global_seqlen/", "perf/", "response_length/")


def is_verl_console(head: Head) -> bool:
    """Whether the start of a file looks like verl's console log."""
    return lines_in(head) > 0


def lines_in(head: Head) -> int:
    """Return the number of verl's step lines and settings in the start of a file."""
    return sum(1 for _ in _RECOGNISED.finditer(_CODES.sub("", head.text)))


def read_verl_console(head: Head, columns: dict[str, str]) -> list[RawRun]:
    """Read the run of a log."""
    log = _Log(head.path.stem)
    log.run.notes += encoding_note(head.encoding)
    for place, line, whole in read_lines(head):
        log.line(place, line, whole)
    return [log.done()]


class _Log:
    """Part of a log that has been read so far."""

    def __init__(self, name: str):
        self.run = RawRun(name, FORMAT, tool="verl")
        self.block: _Block | None = None
        self.overrides: dict[str, str] = {}
        self.initial: dict[str, tuple[float, int, int | None]] = {}
        """Metrics of the model before training: value, place, and the step that was printed with it."""
        self.last: int | None = None
        """Step of the last line of training."""
        self.unread: list[int] = []
        """Places of step lines with parts that are no numbers."""
        self.open: _StepLine | None = None
        """Step line that was read last, while the next line may go on with it."""
        self.wrapped = self.blocks = 0
        self.left = _PARSED
        self.together: list[int] = []
        """Places of lines in which several step lines stand."""
        self.doubtful: list[int] = []
        """Places of step lines followed by a line that may be the rest of their last number."""
        self.cut: list[int] = []
        """Places of step lines of `CUT` characters."""

    def line(self, place: int, line: str, whole: bool) -> None:
        """Read the next line. Most lines hold no metrics, so they are left after a search or two."""
        if self.open is not None:
            if self.open.goes_on(line):
                self.wrapped += self.open.pieces == 2
                return
            self._close()
        if self.block is not None:
            self._continue(self.block, line)
        if "step:" in line:
            self._give_up()
            plain = _CODES.sub("", line.rstrip("\r\n"))
            plain = _PREFIX.sub("", plain, count=1)
            match = _STEP.search(plain)
            if match:
                self.open = _StepLine(place, int(match[1]), plain, match.end(), len(line.rstrip("\r\n")), whole)
        elif "validation metrics" in line or (self.last is None and "'actor_rollout_ref'" in line):
            self._open(place, line)
        elif self.last is None and "=" in line:
            for name, value in _OVERRIDE.findall(line):
                before = self.overrides.setdefault(name, value)
                if before != value:
                    self.overrides[name] = Unknown(f"{before} or {value}", "which the log gives two values")

    def _close(self) -> None:
        """Read the step line that is open, with which no further line goes on."""
        if self.open is not None:
            part, self.open = self.open, None
            if part.doubtful or (part.width == CUT and part.pieces == 1):
                (self.doubtful if part.doubtful else self.cut).append(part.place)
                part.text = part.text.rpartition(" - ")[0]
            self._parted(part.place, part.step, _REPEATED.sub("", part.text[part.start :]), part.whole)

    def _parted(self, place: int, step: int, text: str, whole: bool) -> None:
        """Read the step lines in a line, which has several where two processes wrote at once. The last value before
        another step line is left out, because it may be cut."""
        matches = [*_STEPS.finditer(text)]
        steps, starts = [step, *(int(one[1]) for one in matches)], [0, *(one.end() for one in matches)]
        self.together += [place] * bool(matches)
        for own, start, end in zip(steps, starts, [one.start() for one in matches], strict=False):
            self._step(place, own, text[start:end].rpartition(" - ")[0], True)
        self._step(place, steps[-1], text[starts[-1] :], whole)

    def _step(self, place: int, step: int, text: str, whole: bool) -> None:
        values: dict[str, float] = {}
        if step > LARGEST_STEP:
            self.unread.append(place)
            return
        parts = text.split(" - ")
        if not whole:
            self.run.notes.append(
                f"line {place} has no end: its last value is left out ({parts[-1].rpartition(':')[0] or 'a part'})"
            )
            parts = parts[:-1]
        for part in parts:
            name, _, value = part.strip().rpartition(":")
            number = read_number(value)
            if not text:
                continue
            if number is None or not name or " " in name or ":" in name:
                self.unread.append(place)
            else:
                once(values, f"val/{name}" if name.startswith("test_score/") else name, number)
        training = any(name.startswith(_OF_TRAINING) for name in values)
        if not training and self.last is None:
            self.initial |= {
                name: (_finer(self.initial.get(name), value), place, step) for name, value in values.items()
            }
            return
        if training:
            if self.last is None:
                self._begin(step, 0 if step == 0 or any(name.startswith("timing/") for name in values) else 1)
            self.last = step
        # test_score/ without val/ is the untrained model's where steps count from 0; with val/ it follows a round
        untrained = 1 if text.startswith("test_score/") and self.run.first_step == 0 else 0
        for name, measured in values.items():
            self.run.add(name, step - untrained, measured, place)

    def _begin(self, step: int, first: int) -> None:
        """Set the step of the first round by the first line of training, and with it that of the model before training.

        verl 018b0d7 (January 2025) counts from 1 and calls timing/ something else; before, the untrained model and the
        first round were both step 0.
        """
        self.run.first_step = first
        for name, (value, place, printed) in self.initial.items():
            if printed is not None or step == first:
                self.run.add(name, first - 1 if printed is None else printed - (first == 0), value, place)
            else:
                self.run.notes.append(
                    f"line {place}: initial validation of {name} has no step, and the log begins at {step}: left out"
                )
        self.initial = {}

    def _open(self, place: int, line: str) -> None:
        """Begin a block of several lines: the configuration, or validation metrics."""
        prefix, text = _parted_prefix(line)
        kind = _VALIDATION.search(text)
        if self.blocks < _BLOCKS and (kind or text.lstrip().startswith("{'")):
            self.blocks += 1
            self.block = _Block(kind[1] if kind else "configuration", prefix, place)
            self._continue(self.block, line)

    def _continue(self, block: "_Block", line: str) -> None:
        """Add a line to the block, unless another process wrote it."""
        prefix, own = _parted_prefix(line)
        if prefix != block.prefix:
            return
        foreign = _PREFIX.search(own)
        block.add(own[: foreign.start()] + "\n" if foreign else own)
        if block.kind == "configuration" and (block.open <= 0 or len(block.text) >= _MAX):
            self._configuration(block.text)
        elif block.kind != "configuration" and ("}" in own or block.text.count("\n") > 200 or len(block.text) > _MAX):
            self.block = None
            self._validated(block)

    def _configuration(self, text: str) -> None:
        """Read the configuration, whether its brackets are closed or not."""
        self.block = None
        config = self._literal(text)
        if config is None:
            config = self._closed(text)
            self.run.whole = False
            said = "is not whole: what can be read of it is taken" if config else "cannot be read"
            self.run.notes.append(f"the configuration that is printed in it {said}")
        self.run.config = config or self.run.config

    def _literal(self, text: str) -> dict | None:
        """Return a dictionary written as a Python literal; None for another text, or beyond `_PARSED` characters."""
        self.left -= len(text)
        return literal_values(text.strip()) if self.left >= 0 else None

    def _closed(self, text: str) -> dict | None:
        """Return the dictionary of a cut literal: lines are taken from its end until the rest can be closed."""
        lines = text.splitlines()
        for last in range(len(lines), max(0, len(lines) - _TRIES), -1):
            part = "\n".join(lines[:last]).rstrip().rstrip(",")
            literal = self._literal(part + "}" * max(0, part.count("{") - part.count("}")))
            if literal is not None:
                return literal
        return None

    def _give_up(self) -> None:
        """Read a configuration that has no end by the time training begins, as far as it goes."""
        if self.block is not None and self.block.kind == "configuration":
            self._configuration(self.block.text)

    def _validated(self, block: "_Block") -> None:
        """Add validation metrics that are printed by themselves, with all digits, of the untrained model or after the
        last round."""
        for name, value in _SCORE.findall(block.text):
            number = read_number(value)
            name = f"val/{name}" if name.startswith("test_score/") else name
            if number is None:
                continue
            if block.kind == "Initial" and self.last is None:
                before = self.initial.get(name)
                self.initial[name] = (_finer(before, number), block.place, before[2] if before else None)
            elif block.kind == "Final" and self.last is not None:
                self._final(name, self.last, number, block.place)

    def _final(self, name: str, last: int, value: float, place: int) -> None:
        series = self.run.series.get(name)
        if series is None or series.steps[-1] != last:
            self.run.add(name, last, value, place)
            self.run.unprinted.add((name, last))
            self.run.notes.append(f"final validation of {name} is taken as after the last step that is there, {last}")
        elif abs(series.values[-1] - value) <= 0.00051:
            series.values[-1] = value
        else:
            said = (
                f"final validation of {name}: {value:g}, another evaluation than that of step {last}, "
                f"{series.values[-1]:g}, which is kept"
            )
            self.run.notes.append(said)

    def done(self) -> RawRun:
        """Return the run at the end of the log."""
        self._close()
        self._give_up()
        if self.wrapped:
            self.run.notes.append(f"{self.wrapped} step lines that go on in the next line, as a terminal breaks them")
        self._note(self.together, "step lines run together: each counts, without the last value before another")
        self._note(self.doubtful, "the next line may be the rest of its last value, which is left out")
        self._note(self.cut, f"cut after {CUT} characters, as W&B's output.log does: run-*.wandb beside it has all")
        if self.initial:
            self._begin(1, 1)
        if self.run.config is None and self.overrides:
            self.run.config, self.run.whole = dict(self.overrides), False
            self.run.notes.append("no whole configuration in the log: the design is that of the command line")
        self._rename_own()
        self._note(self.unread, f"parts that are no name:number, or of no step up to {LARGEST_STEP}, left out")
        return self.run

    def _note(self, places: list[int], said: str) -> None:
        if places:
            many = f" and {len(places) - 1} more" if len(places) > 1 else ""
            self.run.notes.append(f"line {places[0]}{many}: {said}")

    def _rename_own(self) -> None:
        """Give a run that rftlab set up the name of its cell, without the hash, so that seeds repeat each other.
        Validation on training questions keeps the name that it has in runs of rftlab."""
        config = self.run.config or {}
        name = _OURS.fullmatch(as_word(value_at(config, "trainer.experiment_name")) or "")
        if name is None or value_at(config, "trainer.project_name") != PROJECT:
            return
        self.run.name = name[1]
        self.run.aliases |= {one: "train.train_pass_at_1" for one in self.run.series if _SEEN.fullmatch(one)}


@dataclass
class _Block:
    """Block that is printed over several lines: the configuration, or validation metrics."""

    kind: str
    prefix: str
    place: int
    text: str = ""
    open: int = 0
    """Number of braces that are not closed."""

    def add(self, line: str) -> None:
        """Add a line."""
        self.text += line
        self.open += line.count("{") - line.count("}")


def _parted_prefix(line: str) -> tuple[str, str]:
    """Return Ray's prefix of a line, "" where it has none, and the rest, without colour codes."""
    plain = _CODES.sub("", line)
    prefix = _PREFIX.match(plain)
    return (prefix[1], plain[prefix.end() :]) if prefix else ("", plain)


def _finer(before: tuple[float, int, int | None] | None, value: float) -> float:
    """Return the more precise of two printed forms of a value, the one with more digits."""
    return before[0] if before is not None and len(repr(before[0])) > len(repr(value)) else value


class _StepLine:
    """Step line, with the lines that go on with it where a terminal broke it at its width."""

    def __init__(self, place: int, step: int, text: str, start: int, width: int, whole: bool):
        self.place, self.step, self.text, self.start, self.width, self.whole = place, step, text, start, width, whole
        self.pieces, self.doubtful = 1, False

    def goes_on(self, line: str) -> bool:
        """Add the next line if it is the rest of this one, and return whether it is."""
        if " " in line.partition(" - ")[0].strip().removeprefix("- "):
            return False  # most lines: a prefix or prose, told before anything is searched
        own = _CODES.sub("", line.rstrip("\r\n"))
        if not own or len(self.text) > LONGEST_STEP or len(own) > self.width or _STEP.search(own):
            return False
        full = len(own) >= self.width - 2
        gap = " " if (self.text.endswith(" -") and own[0] != " ") or own.startswith("- ") else ""
        joined = self.text + gap + own
        if " " not in own and " " not in gap and self.pieces == 1 and _ends(self.text):
            self.doubtful = _LONE.fullmatch(own) is not None  # whether it is the rest of a number cannot be told
            return False
        if not (_parts(own.removeprefix("- ").removesuffix(" -"), full) and (full or _ends(joined))):
            return False
        self.text, self.whole, self.pieces = joined, line.endswith("\n"), self.pieces + 1
        return True


def _parts(text: str, full: bool) -> bool:
    """Whether a text is the end of one part and further parts. full: whether the last of these may be cut."""
    first, *rest = text.split(" - ")
    names = rest[:-1] if full else rest
    return not any(" " in part.strip() for part in (first, *rest)) and all(_named(part) for part in names)


def _named(part: str) -> bool:
    """Whether a part has a name such as verl's, and a number."""
    name, _, value = part.strip().rpartition(":")
    return "/" in name and read_number(value) is not None


def _ends(text: str) -> bool:
    """Whether the last part of a step line has a number at its end."""
    value = text.rpartition(" - ")[2].rpartition(":")[2]
    return not value.endswith(".") and read_number(value) is not None
