"""NeMo-RL's console: a headline a step, and below it values in lists with bullets.

    ========================= Step 10/50 =========================
    ▶ Starting validation at step 10...
    📊 Validation Results:
        • Accuracy: 0.3047
    📊 Training Results:
      • Avg Reward: 0.3203
      • Total step time: 80.85s

Steps count from 1. The validation at step s, which is printed before the training of that step, is after its update.
The configuration that is printed first is parsed as a literal, never evaluated. Source: nemo_rl/algorithms/grpo.py.
"""

import ast
import re
from typing import Any

from rftlab.studies.readers.designs.values import plain_values
from rftlab.studies.readers.run import RawRun
from rftlab.studies.readers.text import Head, encoding_note, read_lines, read_number

FORMAT, LONGEST_CONFIG = "NeMo-RL console", 2000
"""And lines of the configuration that is printed."""
_STEP = re.compile(r"^=+ Step (\d{1,9})/\d{1,9} =+\s*$")
_VALIDATION = re.compile(r"Starting validation at step (\d{1,9})\.\.\.")
_VALUE = re.compile(r"^\s+• ([A-Z][\w ]{0,60}): ([-+\d.einfa]{1,40})(?:s| tokens)?(?: \(|\s*$)")
_NAMES = {
    "Loss": "train/loss", "Avg Reward": "train/reward", "Mean Generation Length": "train/response_length",
    "Total step time": "step_time", "Accuracy": "validation/accuracy",
    "Average response length": "validation/response_length",
}  # fmt: skip


def is_nemo_console(head: Head) -> bool:
    """Whether the start holds the headline of a step, and results with a bullet."""
    return any(map(_STEP.match, head.lines)) and any(map(_VALUE.match, head.lines))


def read_nemo_console(head: Head, columns: dict[str, str]) -> list[RawRun]:
    """The run of a log."""
    run = RawRun(head.path.stem, FORMAT, first_step=1, notes=encoding_note(head.encoding))
    step, test_step = None, None
    config: list[str] | None = None
    for place, line, _ in read_lines(head):
        if config is not None:
            config.append(line)
            if line.rstrip().endswith("}}") or len(config) > LONGEST_CONFIG:
                run.config, config = run.config or _literal("".join(config)), None
        elif line.startswith("{'") and run.config is None and step is None:
            config = [line]
        if match := _STEP.match(line):
            step, test_step = int(match[1]), None
        elif match := _VALIDATION.search(line):
            test_step = int(match[1])
        elif (match := _VALUE.match(line)) and (value := read_number(match[2])) is not None:
            name = _NAMES.get(match[1], f"train/{match[1]}")
            at = test_step if name.startswith("validation/") else step
            if at is not None:
                run.add(name, at, value, place)
    return [run]


def _literal(text: str) -> dict[str, Any] | None:
    """A printed configuration; None where it is none, or not whole."""
    try:
        config = plain_values(ast.literal_eval(text))
    except (ValueError, SyntaxError, MemoryError, RecursionError):
        return None
    return config if isinstance(config, dict) else None
