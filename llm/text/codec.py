"""Between text and ids: prompts in, responses out, and the ids at which a response ends."""

from collections.abc import Iterable, Sequence
from typing import Protocol

from rftlab.llm.tasks import symbols
from rftlab.llm.tasks.task import Prompt, prompt_text
from rftlab.llm.text.chat import rendered
from rftlab.shared.plumbing.errors import UserError, check

LARGEST_ID = 2**31 - 1
"""A number of tokens that every tokenizer and engine can count to."""


def is_failure(error: BaseException) -> bool:
    """Whether a library failed, and nobody asked the process to end. A library written in Rust that panics raises what
    is no Exception."""
    return isinstance(error, Exception) or type(error).__name__ == "PanicException"


class Codec(Protocol):
    """Tokens that a model reads and writes."""

    stops: tuple[int, ...]
    """Every id that ends a response."""

    def encode(self, prompts: Sequence[Prompt]) -> list[list[int]]:
        """Ids of each prompt, as the model expects it."""

    def decode(self, ids: Iterable[int]) -> str:
        """Text of a response, without special ids."""


class SymbolCodec:
    """The symbols of synthetic arithmetic."""

    stops: tuple[int, ...] = (symbols.END,)

    def encode(self, prompts: Sequence[Prompt]) -> list[list[int]]:
        """The start symbol, then the problem."""
        return [[symbols.START, *symbols.encode(prompt_text(prompt))] for prompt in prompts]

    def decode(self, ids: Iterable[int]) -> str:
        """Text of a response."""
        return symbols.decode(ids)


class TextCodec:
    """A Hugging Face tokenizer with its chat template."""

    def __init__(self, tokenizer, generation_config, n_ids: int):
        """Stops are all end-of-sequence ids of the generation config, and the tokenizer's own. n_ids: that the model
        can read."""
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
        """Ids of chat messages under the template, the model's turn opened; or of text as it is. Raises UserError
        where the model cannot read them."""
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
        """Ids of a prompt. text: what the template made of chat messages."""
        try:
            ids = self.tokenizer(prompt if text is None else text, add_special_tokens=text is None).input_ids
        except BaseException as error:  # tokenizers raise what they like
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
        """Text of a response."""
        return self.tokenizer.decode(list(ids), skip_special_tokens=True)
