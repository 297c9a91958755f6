"""Convert between text and token ids: encode prompts, decode responses, and list the ids at which a response ends.

A chat template is a program that came with the model, and may run for ever or write without end. transformers renders
it in a process of its own with limits (llm/tasks/chat_worker.py). Nothing else bounds a single operation of a
template."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterable, Sequence
from datetime import date
from pathlib import Path
from typing import Protocol

from rftlab.llm.tasks.arithmetic import END, START, decode_symbols, encode_symbols
from rftlab.llm.tasks.task import Prompt, prompt_text
from rftlab.shared.plumbing.errors import UserError, check

SECONDS = 60
"""Seconds of CPU time for rendering all chats of a split."""
LONGEST = 100_000
"""Largest number of characters that a template may add to those of a chat."""
TODAY = date(2024, 7, 26)
"""Date that templates get as today's, so that a run's prompts do not change overnight. Llama 3.2's template has this
date where there is no clock."""
_CODES = "aAbBcdDeFgGhHIjklmMpPrRSTuUVwWxXyYzZ"
"""Format codes of strftime, after % or %-, without those that depend on the locale."""


def rendered(
    template: str, variables: dict[str, object], chats: list[list[dict[str, str]]], seconds: int = SECONDS
) -> list[str]:
    """Return the text of every chat, with the model's turn opened. variables: a template's inputs besides messages.

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
    """Return a line to put before a template in which `strftime_now` is a macro that returns TODAY. Templates find the
    macro before the function of that name."""
    known = {f"%{dash}{code}": TODAY.strftime(f"%{dash}{code}") for code in _CODES for dash in ("", "-")}
    steps = "".join(f" | replace({code!r}, {value!r})" for code, value in known.items())
    shown = f"{{{{ format | replace('%%', '\\0'){steps} | replace('\\0', '%') }}}}"
    return f"{{% macro strftime_now(format) %}}{shown}{{% endmacro %}}\n"


LARGEST_ID = 2**31 - 1
"""Largest token id that every tokenizer and engine can represent."""


def is_failure(error: BaseException) -> bool:
    """Whether an exception is a library's failure rather than a request to end the process. A library written in Rust
    that panics raises an exception that is no Exception."""
    return isinstance(error, Exception) or type(error).__name__ == "PanicException"


class Codec(Protocol):
    """Interface between text and a model's tokens."""

    stops: tuple[int, ...]
    """All ids that end a response."""

    def encode(self, prompts: Sequence[Prompt]) -> list[list[int]]:
        """Return the ids of each prompt in the format of the model."""

    def decode(self, ids: Iterable[int]) -> str:
        """Return the text of a response, without special ids."""


class SymbolCodec:
    """Codec of the symbols of synthetic arithmetic."""

    stops: tuple[int, ...] = (END,)

    def encode(self, prompts: Sequence[Prompt]) -> list[list[int]]:
        """Return the start symbol followed by the problem, for each prompt."""
        return [[START, *encode_symbols(prompt_text(prompt))] for prompt in prompts]

    def decode(self, ids: Iterable[int]) -> str:
        """Return the text of a response."""
        return decode_symbols(ids)


class TextCodec:
    """Codec of a Hugging Face tokenizer with its chat template."""

    def __init__(self, tokenizer, generation_config, n_ids: int):
        """Set up the codec. Stops are all end-of-sequence ids of the generation config, and the tokenizer's own. n_ids:
        number of ids that the model can read."""
        named = generation_config.eos_token_id
        named = named if isinstance(named, list) else [named]
        self.tokenizer, self.n_ids = tokenizer, n_ids
        ends = [i for i in (*named, tokenizer.eos_token_id) if i is not None]
        for end in ends:
            good = type(end) is int and 0 <= end <= LARGEST_ID
            check(good, f"the model has the end-of-sequence id {str(end)[:80]!r}; allowed: 0 to {LARGEST_ID}")
        self.stops = tuple(sorted(set(ends)))
        check(
            bool(self.stops),
            "the model names no end-of-sequence id; allowed: one or more, in its generation config or its tokenizer",
        )

    def encode(self, prompts: Sequence[Prompt]) -> list[list[int]]:
        """Return the ids of chat messages under the template, with the model's turn opened, or of plain text. Raises
        UserError where the model cannot read them."""
        texts = iter(self._texts([prompt for prompt in prompts if not isinstance(prompt, str)]))
        return [
            self._ids(prompt, None) if isinstance(prompt, str) else self._ids(prompt, next(texts)) for prompt in prompts
        ]

    def _texts(self, chats: list[list[dict[str, str]]]) -> list[str]:
        if not chats:
            return []
        missing = (
            "the tokenizer has no chat template, and the prompts of this task are chat messages; name a model with one"
        )
        check(bool(self.tokenizer.chat_template), missing)
        return rendered(self.tokenizer.get_chat_template(), self.tokenizer.special_tokens_map, chats)

    def _ids(self, prompt: Prompt, text: str | None) -> list[int]:
        """Return the ids of a prompt. text: the template's text of chat messages."""
        try:
            ids = self.tokenizer(prompt if text is None else text, add_special_tokens=text is None).input_ids
        except BaseException as error:  # tokenizers raise any exception
            if not is_failure(error):
                raise
            said = " ".join(str(error).split())[:200]
            raise UserError(
                f"the model's tokenizer does not take the prompt {str(prompt)[:80]!r}: {said}; correct it, or "
                "name another model"
            ) from None
        allowed = f"allowed: below {self.n_ids}, a model with the tokenizer that it was trained with"
        check(
            max(ids, default=0) < self.n_ids, f"the tokenizer makes the id {max(ids, default=0)} of a prompt; {allowed}"
        )
        return ids

    def decode(self, ids: Iterable[int]) -> str:
        """Return the text of a response, without special ids."""
        return self.tokenizer.decode(list(ids), skip_special_tokens=True)
