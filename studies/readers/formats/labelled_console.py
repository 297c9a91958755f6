"""Console logs with a labelled dictionary a step, behind Ray's prefix and the time: slime's and OpenRLHF's.

    rollout 3: {'rollout/raw_reward': 0.4, ..}    step 6: {'train/loss': ..}    eval 3: {'eval/aime': 0.07, ..}
    Global step 12: {'reward': 0.5, ..}           .. global_step 12, eval_metrics: {'eval_gsm8k_pass1': ..}

slime counts rollouts from 0, and updates on their own; those between two rollouts belong to the first. An evaluation
that is printed before the first rollout is of the untrained model, else `eval r` is after r + 1 rounds. OpenRLHF counts
a global step after the updates of a batch of rollouts, so it is a round.

Dictionaries are taken apart by a pattern, never evaluated. Sources: slime (624b824), train.py, observability,
backends/megatron_utils/model.py; OpenRLHF (3c3be62), trainer/ppo_trainer.py, ppo_trainer_async.py.
"""

import re
from pathlib import Path

from rftlab.studies.readers.formats.trl_console import values_in
from rftlab.studies.readers.run import RawRun
from rftlab.studies.readers.text import Head, encoding_note, lines_of, opened_text

FORMAT = "labelled console"
_SLIME = re.compile(r"(?:^|[\s\])])(rollout|step|perf|eval|passrate|multi_turn) (\d{1,9}): (?=\{'(?:\w+/|raw_|pass@))")
_OPENRLHF = re.compile(r"(?:Global step (\d{1,9})|global_step (\d{1,9}), eval_metrics|Eval at step (\d{1,9})): (?=\{')")
_SET = re.compile(r"eval/([^/]+)")
_RATES = re.compile(r"eval/(.+)-(pass@\d+|truncated_ratio)")


def recognise(head: Head) -> bool:
    """Whether the start holds such lines."""
    return any(_SLIME.search(line) or _OPENRLHF.search(line) for line in head.lines if ": {'" in line)


def read(path: Path, head: Head, columns: dict[str, str]) -> list[RawRun]:
    """The run of a log."""
    log = _Log(path.stem)
    log.run.notes += encoding_note(head.encoding)
    with opened_text(path, head.encoding) as stream:
        for place, line, _ in lines_of(stream):
            if ": {'" in line:
                log.line(place, line)
    return [log.done()]


class _Log:
    """What has been read of a log so far."""

    def __init__(self, name: str):
        self.run = RawRun(name, "")
        self.rollout: int | None = None
        """The last one of slime's whose data were printed: updates that follow are its."""
        self.cut = self.lost = 0

    def line(self, place: int, line: str) -> None:
        """Take a line that may hold a labelled dictionary."""
        slime = _SLIME.search(line)
        found = slime or _OPENRLHF.search(line)
        values = values_in(line[found.end() :]) if found else None
        if found is None or values is None:
            self.cut += found is not None
        elif slime:
            self._slime(slime[1], int(slime[2]), values, place)
        else:
            self.run.format, self.run.first_step = "OpenRLHF console", 1
            self._add(int(found[1] or found[2] or found[3]), values, place)

    def _slime(self, kind: str, number: int, values: dict[str, float], place: int) -> None:
        self.run.format, self.run.tool, self.run.first_step = "slime console", "slime", 0
        if kind == "eval":
            rounds = 0 if self.rollout is None and number == 0 else number + 1
            self._add(rounds, {_test_name(name): value for name, value in values.items()}, place)
            return
        self.rollout = number if kind == "rollout" else self.rollout
        step = self.rollout if kind == "step" else number
        if step is None:
            self.lost += 1
        else:
            self._add(step, values, place)

    def _add(self, step: int, values: dict[str, float], place: int) -> None:
        for name, value in values.items():
            if name not in ("train/step", "rollout/step"):
                self.run.add(name, step, value, place)

    def done(self) -> RawRun:
        """The run, when the log has ended."""
        if self.cut:
            self.run.notes.append(f"{self.cut} dictionaries that are cut or hold more than numbers left out")
        if self.lost:
            self.run.notes.append(f"{self.lost} updates before the first rollout that is there left out")
        return self.run


def _test_name(name: str) -> str:
    """slime calls the mean reward of a set by the set's name alone."""
    rate, alone = _RATES.fullmatch(name), _SET.fullmatch(name)
    return f"eval/{rate[1]}/{rate[2]}" if rate else f"test_score/{alone[1]}" if alone else name
