"""Between text and ids: prompts in, responses out, and the ids at which a response ends."""

from collections.abc import Iterable
from datetime import date
from typing import Protocol

from llm.tasks import symbols
from llm.tasks.task import Prompt
from shared.errors import UserError, check

TODAY = date(2024, 7, 26)
"""What templates take for today, so that a run's prompts do not change overnight: the date that Llama 3.2's has where there is no clock."""


class Codec(Protocol):
    """What a model reads and writes."""

    stops: tuple[int, ...]
    """Every id that ends a response."""

    def encode(self, prompt: Prompt) -> list[int]:
        """Ids of a prompt, as the model expects it."""

    def decode(self, ids: Iterable[int]) -> str:
        """Text of a response, without special ids."""


class SymbolCodec:
    """The symbols of synthetic arithmetic."""

    stops = (symbols.END,)

    def encode(self, prompt: Prompt) -> list[int]:
        """The start symbol, then the problem."""
        return [symbols.START, *symbols.encode(prompt)]

    def decode(self, ids: Iterable[int]) -> str:
        """Text of a response."""
        return symbols.decode(ids)


class TextCodec:
    """A Hugging Face tokenizer with its chat template."""

    def __init__(self, tokenizer, generation_config, n_ids: int):
        """Stops are all end-of-sequence ids of the generation config, and the tokenizer's own. n_ids: that the model can read."""
        named = generation_config.eos_token_id
        named = named if isinstance(named, list) else [named]
        self.tokenizer, self.n_ids = tokenizer, n_ids
        self.stops = tuple(sorted({i for i in (*named, tokenizer.eos_token_id) if i is not None}))
        check(bool(self.stops), "the model names no end-of-sequence id; allowed: one or more, in its generation config or its tokenizer")

    def encode(self, prompt: Prompt) -> list[int]:
        """Ids of chat messages under the template, the model's turn opened; or of text as it is. Raises UserError where the model cannot read them."""
        messages = not isinstance(prompt, str)
        missing = "the tokenizer has no chat template, and the prompts of this task are chat messages; name a model with one"
        check(not messages or bool(self.tokenizer.chat_template), missing)
        try:
            ids = self._of_messages(prompt) if messages else self.tokenizer(prompt).input_ids
        except Exception as error:  # templates and tokenizers raise what they like
            said = " ".join(str(error).split())[:200]
            raise UserError(
                f"the model's template or tokenizer does not take the prompt {str(prompt)[:80]!r}: {said}; correct it, or name another model"
            ) from None
        allowed = f"allowed: below {self.n_ids}, a model with the tokenizer that it was trained with"
        check(max(ids, default=0) < self.n_ids, f"the tokenizer makes the id {max(ids, default=0)} of a prompt; {allowed}")
        return ids

    def _of_messages(self, prompt: list[dict[str, str]]) -> list[int]:
        text = self.tokenizer.apply_chat_template(prompt, add_generation_prompt=True, tokenize=False, strftime_now=TODAY.strftime)
        return self.tokenizer(text, add_special_tokens=False).input_ids

    def decode(self, ids: Iterable[int]) -> str:
        """Text of a response."""
        return self.tokenizer.decode(list(ids), skip_special_tokens=True)
