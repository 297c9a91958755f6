"""Write the tiny model to a folder that transformers can read, with a tokenizer of its symbols."""

from pathlib import Path

from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast

from rftlab.llm.config import Tiny
from rftlab.llm.models.tiny import pretrained
from rftlab.llm.tasks.arithmetic import END, PAD, START, SYMBOLS
from rftlab.llm.tasks.config import TaskConfig


def write_tiny(folder: Path) -> None:
    """Save the base model of `mix97`, from the cache or pre-trained now."""
    pretrained(TaskConfig("mix97"), Tiny()).save_pretrained(folder)
    tokenizer().save_pretrained(folder)


def tokenizer() -> PreTrainedTokenizerFast:
    """Return a tokenizer in which each symbol is a token, and text has no spaces."""
    words = Tokenizer(models.WordLevel({symbol: i for i, symbol in enumerate(SYMBOLS)}, unk_token=SYMBOLS[PAD]))
    words.pre_tokenizer, words.decoder = pre_tokenizers.Split(Regex("####|."), "isolated"), decoders.Fuse()
    special = {f"{name}_token": SYMBOLS[i] for name, i in (("bos", START), ("eos", END), ("pad", PAD))}
    return PreTrainedTokenizerFast(tokenizer_object=words, clean_up_tokenization_spaces=False, **special)
