"""Chats to text by a model's chat template, with limits: a template is a program that came with the model, and may run
for ever or write without end.

transformers renders, as it does for everybody, in a process of its own (llm/text/chat_worker.py). Nothing else bounds
one operation of a template.
"""

import json
import os
import signal
import subprocess
import sys
from datetime import date
from pathlib import Path

from rftlab.shared.plumbing.errors import UserError

SECONDS = 60
"""Of a processor, for all chats of a split."""
LONGEST = 100_000
"""Characters that a template may add to those of a chat."""
TODAY = date(2024, 7, 26)
"""The date that templates take for today, so that a run's prompts do not change overnight: the date that Llama 3.2's
has where there is no clock."""
_CODES = "aAbBcdDeFgGhHIjklmMpPrRSTuUVwWxXyYzZ"
"""Of strftime, after % or %-; those that depend on the machine's place left out."""


def rendered(
    template: str, variables: dict[str, object], chats: list[list[dict[str, str]]], seconds: int = SECONDS
) -> list[str]:
    """The text of every chat, the model's turn opened. variables: what a template reads beside messages.

    Raises UserError where the template cannot be read, refuses a chat, or goes beyond the limits.
    """
    request = {
        "template": _stopped_clock() + template,
        "variables": variables,
        "chats": chats,
        "seconds": seconds,
        "longest": LONGEST,
    }
    command = [sys.executable, "-P", str(Path(__file__).with_name("chat_worker.py"))]
    environment = os.environ | {"OPENBLAS_NUM_THREADS": "1", "TRANSFORMERS_VERBOSITY": "error"}
    # an own session: Ctrl-C reaches the parent alone, which then kills its child
    done = subprocess.run(
        command,
        input=json.dumps(request, default=str).encode(),
        capture_output=True,
        env=environment,
        start_new_session=True,
    )
    if done.returncode == -signal.SIGXCPU:
        raise UserError(
            f"the model's chat template takes more than {seconds} seconds for {len(chats)} prompts; correct "
            "it, or name another model"
        )
    if done.returncode:
        said = done.stderr.decode(errors="replace").strip().rpartition("\n")[2]
        raise UserError(f"chat templates cannot be read: {said or f'the process ended with status {done.returncode}'}")
    reply = json.loads(done.stdout)
    if "said" in reply:
        said, prompt = " ".join(reply["said"].split())[:200], str(chats[reply["at"]])[:80]
        raise UserError(
            f"the model's chat template does not take the prompt {prompt!r}: {said}; correct it, or name another model"
        )
    return reply["texts"]


def _stopped_clock() -> str:
    """A line before a template in which `strftime_now` is a macro that tells TODAY. Templates find it before the
    function of that name."""
    known = {f"%{dash}{code}": TODAY.strftime(f"%{dash}{code}") for code in _CODES for dash in ("", "-")}
    steps = "".join(f" | replace({code!r}, {value!r})" for code, value in known.items())
    shown = f"{{{{ format | replace('%%', '\\0'){steps} | replace('\\0', '%') }}}}"
    return f"{{% macro strftime_now(format) %}}{shown}{{% endmacro %}}\n"
