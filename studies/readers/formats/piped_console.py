"""Console logs with a line a step whose parts are parted by bars.

    SUCCESS Step 28 | Time: 73.77s | Reward: 0.3887 | ..      prime-rl until 2025, orchestrator and trainer
    SUCCESS Step 28 |   1m 13s | Reward 0.3887 | ..           prime-rl since
    SUCCESS Evaluated gsm8k (Step 28) | Policy v27 | ..
    iteration  7/  2174 | reward: 7.6E-01 | ..                Megatron's, as ms-swift prints it

Source: prime-rl (559b447): orchestrator/orchestrator.py, trainer/rl/train.py.
"""

import re
from pathlib import Path

from rftlab.studies.readers.run import RawRun
from rftlab.studies.readers.text import Head, encoding_note, lines_of, number, once, opened_text

FORMAT = "console with bars"
_CODES = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")
_STEP = re.compile(r"(?:\bSUCCESS +Step (\d{1,9})|\biteration +(\d{1,9})/ *\d+) +\| ")
_TEST = re.compile(r"\bSUCCESS +Evaluated (\S{1,200}) \(Step (\d{1,9})\) +\| ")
_PART = re.compile(
    r"(?P<name>[A-Za-z][^|:]{0,80}?)(?:: *| +)(?P<value>[-+]?(?:\d+(?:\.\d*)?(?:[eE][-+]?\d+)?|nan|inf))"
    r"(?P<unit>%|s| tokens/s| tokens/sample| GiB)?"
)
_TIME = re.compile(r"(?:Time: *)?(?:(\d+)d ?)?(?:(\d+)h ?)?(?:(\d+)m ?)?(?:(\d+(?:\.\d+)?)s)?")
LONGEST = 300
"""Characters of a part."""
_NAMES = {
    "Reward": "reward",
    "Truncation": "is_truncated/mean",
    "Entropy": "entropy/all/mean",
    "Grad. Norm": "optim/grad_norm",
    "LR": "optim/lr",
    "Mismatch KL": "mismatch_kl/all/mean",
    "Loss": "loss/mean",
    "grad norm": "grad_norm",
    "learning rate": "learning_rate",
}
"""prime-rl's own names of what it prints, and TRL's of what Megatron does."""


def recognise(head: Head) -> bool:
    """Whether the start holds such lines."""
    return any(_STEP.search(_CODES.sub("", line)) for line in head.lines if "|" in line)


def read(path: Path, head: Head, columns: dict[str, str]) -> list[RawRun]:
    """The run of a log."""
    run = RawRun(path.stem, FORMAT)
    run.notes += encoding_note(head.encoding)
    without = 0
    with opened_text(path, head.encoding) as stream:
        for place, line, whole in lines_of(stream):
            if "|" not in line and "Evaluated " not in line:
                continue
            plain = _CODES.sub("", line).rstrip()
            step, test = _STEP.search(plain), _TEST.search(plain)
            found = test or step
            if found is None:
                without += "SUCCESS Evaluated " in plain
                continue
            run.tool = "prime-rl" if "SUCCESS" in found[0] else run.tool
            parts = plain[found.end() :].split("|")
            if not whole:
                run.notes.append(f"line {place} has no end: its last value is left out")
                parts = parts[:-1]
            prefix, at = (f"eval/{test[1]}/", test[2]) if test else ("", step[1] or step[2] if step else "")
            for name, value in _values(parts).items():
                run.add(prefix + name, int(at), value, place)
    run.notes += [f"{without} evaluations that are printed without a step left out"] if without else []
    return [run]


def _values(parts: list[str]) -> dict[str, float]:
    """Numbers of the parts of a line by name; what is neither is left out."""
    found: dict[str, float] = {}
    for part in (part.strip() for part in parts if len(part) <= LONGEST):
        time, named = _TIME.fullmatch(part), _PART.fullmatch(part)
        if time and part:
            days, hours, minutes, seconds = (float(value or 0) for value in time.groups())
            once(found, "time/step", ((24 * days + hours) * 60 + minutes) * 60 + seconds)
        elif named:
            value = number(named["value"] + ("%" if named["unit"] == "%" else ""))
            name = named["name"].strip()
            if value is not None:
                once(found, _NAMES.get(name, name), value)
    return found
