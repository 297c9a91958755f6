"""From a run's checkpoint to a folder that other programs load: a Hugging Face model with its tokenizer and a card, or
a PEFT adapter.

    config.json, model.safetensors, generation_config.json    the model
    adapter_config.json, adapter_model.safetensors            in their place: an adapter
    tokenizer.json, tokenizer_config.json, ...                the tokenizer, with its chat template
    README.md                                                 the card: design and curve
"""

import shutil
import tempfile
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file
from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers, processors
from transformers import GenerationConfig, PreTrainedModel, PreTrainedTokenizerFast
from transformers.utils.logging import disable_progress_bar

from rftlab.llm.card import model_card
from rftlab.llm.config import SMOLLM2, TINY, LLMRun, LoRA
from rftlab.llm.models.load import load_model
from rftlab.llm.moments import WEIGHTS
from rftlab.llm.policy.lora import whole_weights, write_adapter
from rftlab.llm.policy.policy import Policy
from rftlab.llm.stored import STATE, StoredRun, find_checkpoint
from rftlab.llm.tasks import symbols
from rftlab.llm.text.codec import Codec, TextCodec
from rftlab.shared.plumbing.callbacks import noop
from rftlab.shared.plumbing.errors import check
from rftlab.shared.plumbing.files import reported, write_folder
from rftlab.shared.plumbing.folders import path_kind, read_json


def export(
    run: StoredRun,
    target: Path,
    round_index: int | None = None,
    merge: bool = False,
    remark: Callable[[str], None] = noop,
) -> int:
    """Write the model of a checkpoint, the last if none is named, to a new folder; returns its round.

    A run with adapters gives a PEFT adapter; merge: the whole model, with what they add in its weights. Raises
    UserError where that cannot be had, before anything is written.
    """
    check(path_kind(target) is None, f"{target} is there already; allowed: a new folder")
    run_config = run.model
    adapter = bool(run_config.lora.rank) and not merge
    check(
        bool(run_config.lora.rank) or not merge, "merge: the run has no adapters (lora.rank = 0); allowed: without it"
    )
    check(
        not adapter or run_config.model.source not in (TINY, SMOLLM2),
        f"the base model {run_config.model.source!r} is made here, where no adapter can name it; allowed: merge",
    )
    place = find_checkpoint(run, round_index, (WEIGHTS,))
    model, codec = trained_model(run_config, place, remark)
    with tempfile.TemporaryDirectory() as name, torch.no_grad():
        scratch = Path(name)
        if adapter:
            write_adapter(scratch, model, run_config.lora, run_config.model.source)
        else:
            _write_model(scratch, model, codec, run_config, remark)
        _tokenizer(codec).save_pretrained(scratch)
        done = int(place.name)
        (scratch / "README.md").write_text(model_card(run, done, adapter), encoding="utf-8", newline="\n")
        with reported(target, also=SafetensorError):
            write_folder(target, {path.name: partial(shutil.copyfile, path) for path in sorted(scratch.iterdir())})
    return done


def trained_model(run: LLMRun, place: Path, remark: Callable[[str], None]) -> tuple[PreTrainedModel, Codec]:
    """The model of a run with the weights of a checkpoint. Raises UserError where they are of another model."""
    disable_progress_bar()
    model, codec = load_model(run, remark=remark)
    facts, policy = read_json(place / STATE), Policy(model, run.compute)
    base = facts.get("base") if isinstance(facts, dict) else None
    check(
        not run.lora.rank or base == policy.base_checksum(),
        f"{place} was trained from another base model than {run.model.source!r} is now; allowed: that model",
    )
    weights, named = load_file(place / WEIGHTS), dict(policy.named_parameters())
    check(
        {key: value.shape for key, value in weights.items()} == {key: value.shape for key, value in named.items()},
        f"{place} has weights of another model than {run.model.source!r} is now; allowed: that model",
    )
    with torch.no_grad():
        for key, parameter in named.items():
            parameter.copy_(weights[key])
    return model, codec


def _write_model(
    scratch: Path, model: PreTrainedModel, codec: Codec, run: LLMRun, remark: Callable[[str], None]
) -> None:
    """The whole model; adapters, where there are some, in its weights."""
    if run.lora.rank:
        whole = dict(whole_weights(model))
        model, _ = load_model(replace(run, lora=LoRA()), remark=remark)
        for name, parameter in model.named_parameters():
            parameter.copy_(whole[name])
    model.generation_config = _generation(model, codec, run)
    model.save_pretrained(scratch)


def _generation(model: PreTrainedModel, codec: Codec, run: LLMRun) -> GenerationConfig:
    """Settings with which the run's evaluations sampled: the whole distribution, its temperature, and its ends."""
    before = model.generation_config
    ids: dict[str, Any] = {name: getattr(before, name, None) for name in ("bos_token_id", "pad_token_id")}
    return GenerationConfig(
        do_sample=True,
        temperature=run.temperature,
        top_p=1.0,
        top_k=0,
        max_new_tokens=run.model.max_response_length,
        eos_token_id=list(codec.stops),
        **ids,
    )


def _tokenizer(codec: Codec) -> Any:
    return codec.tokenizer if isinstance(codec, TextCodec) else symbol_tokenizer()


def symbol_tokenizer() -> PreTrainedTokenizerFast:
    """The symbols of synthetic arithmetic as a tokenizer that transformers loads: a start before a prompt, no spaces
    between symbols."""
    known = {symbol: i for i, symbol in enumerate(symbols.SYMBOLS)}
    start, end, pad = (symbols.SYMBOLS[i] for i in (symbols.START, symbols.END, symbols.PAD))
    tokenizer = Tokenizer(models.WordLevel(known, unk_token=pad))
    tokenizer.pre_tokenizer = pre_tokenizers.Split(Regex("####|."), "isolated")
    tokenizer.post_processor = processors.TemplateProcessing(
        single=f"{start} $A", pair=None, special_tokens=[(start, symbols.START)]
    )
    tokenizer.decoder = decoders.Fuse()
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, bos_token=start, eos_token=end, pad_token=pad, clean_up_tokenization_spaces=False
    )
