"""Export a run's checkpoint to a folder that other programs load: a Hugging Face model with its tokenizer and a card,
or a PEFT adapter.

    config.json, model.safetensors, generation_config.json    the model
    adapter_config.json, adapter_model.safetensors            in their place: an adapter
    tokenizer.json, tokenizer_config.json, ...                the tokenizer, with its chat template
    README.md                                                 the card: design and curve
"""

import json
import shutil
import tempfile
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import pandas as pd
import torch
from safetensors import SafetensorError
from safetensors.torch import load_file
from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers, processors
from transformers import GenerationConfig, PreTrainedModel, PreTrainedTokenizerFast
from transformers.utils.logging import disable_progress_bar

from rftlab.llm.config import SMOLLM2, TINY, LLMRun, LoRA
from rftlab.llm.models.load import load_model
from rftlab.llm.policy.policy import Policy
from rftlab.llm.policy.tensors import WEIGHTS, whole_weights, write_adapter
from rftlab.llm.stored import STATE, StoredRun, find_checkpoint, flat_config
from rftlab.llm.tasks.arithmetic import END, PAD, START, SYMBOLS
from rftlab.llm.tasks.codec import Codec, TextCodec
from rftlab.shared.plumbing.callbacks import noop
from rftlab.shared.plumbing.errors import check, plain
from rftlab.shared.plumbing.files import reported, write_folder
from rftlab.shared.plumbing.folders import FILE, path_kind, read_json


def export(
    run: StoredRun,
    target: Path,
    round_index: int | None = None,
    merge: bool = False,
    remark: Callable[[str], None] = noop,
) -> int:
    """Write the model of a checkpoint, by default the last one, to a new folder; return its round.

    A run with adapters gives a PEFT adapter. merge: write the whole model, with the adapters added to its weights.
    Raises UserError where this is impossible, before anything is written.
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
        tokenizer: Any = codec.tokenizer if isinstance(codec, TextCodec) else symbol_tokenizer()
        tokenizer.save_pretrained(scratch)
        done = int(place.name)
        (scratch / "README.md").write_text(model_card(run, done, adapter), encoding="utf-8", newline="\n")
        with reported(target, also=SafetensorError):
            write_folder(target, {path.name: partial(shutil.copyfile, path) for path in sorted(scratch.iterdir())})
    return done


def trained_model(run: LLMRun, place: Path, remark: Callable[[str], None]) -> tuple[PreTrainedModel, Codec]:
    """Return a run's model with the weights of a checkpoint. Raises UserError where these belong to another model."""
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
    """Write the whole model, with adapters added to its weights."""
    if run.lora.rank:
        whole = dict(whole_weights(model))
        model, _ = load_model(replace(run, lora=LoRA()), remark=remark)
        for name, parameter in model.named_parameters():
            parameter.copy_(whole[name])
    model.generation_config = _generation(model, codec, run)
    model.save_pretrained(scratch)


def _generation(model: PreTrainedModel, codec: Codec, run: LLMRun) -> GenerationConfig:
    """Return the generation settings of the run's evaluations: the whole distribution, its temperature, and its stop
    ids."""
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


def symbol_tokenizer() -> PreTrainedTokenizerFast:
    """Return the tokenizer of synthetic arithmetic for transformers: a start symbol before a prompt, no spaces between
    symbols."""
    known = {symbol: i for i, symbol in enumerate(SYMBOLS)}
    start, end, pad = (SYMBOLS[i] for i in (START, END, PAD))
    tokenizer = Tokenizer(models.WordLevel(known, unk_token=pad))
    tokenizer.pre_tokenizer = pre_tokenizers.Split(Regex("####|."), "isolated")
    tokenizer.post_processor = processors.TemplateProcessing(
        single=f"{start} $A", pair=None, special_tokens=[(start, START)]
    )
    tokenizer.decoder = decoders.Fuse()
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, bos_token=start, eos_token=end, pad_token=pad, clean_up_tokenization_spaces=False
    )


COLUMNS = ("round", "rollouts", "tokens", "reward", "train_pass_at_1", "test_pass_at_1")
"""Columns of the curve in the card's table, where the curve has them."""
ROWS = 12


def model_card(run: StoredRun, done: int, adapter: bool) -> str:
    """Return the README.md of a checkpoint's folder, in Markdown with the fields that a hub reads."""
    config, source = _without_paths(run.config), _name(run.config["model"]["source"])
    fields = {
        "library_name": "peft" if adapter else "transformers",
        "pipeline_tag": "text-generation",
        "tags": ["rftlab", "reinforcement-learning"],
    } | ({"base_model": source} if _is_hub_name(source) else {})
    kind = "Adapters for" if adapter else "Weights of"
    return "\n".join(
        [
            "---",
            *(f"{name}: {json.dumps(value)}" for name, value in fields.items()),  # JSON is valid YAML
            "---",
            "",
            f"# {_code(source)} after {done} rounds of reinforcement fine-tuning",
            "",
            f"{kind} {_code(source)}, trained with rftlab {_version()} on the task {_code(config['task']['name'])} for "
            f"{done} of {run.rounds} rounds, seed {_code(config['seed'])}.",
            "",
            "## Design",
            "",
            "| choice | value |",
            "|---|---|",
            *(f"| {_code(name)} | {_code(value)} |" for name, value in _choices(config)),
            "",
            "## Curve",
            "",
            *_curve(run, done),
            "",
            "Pass@1 is that of one sampled response to each question, under the strict rule of the task. The whole "
            "configuration:",
            "",
            "```json",
            json.dumps(config, indent=1),  # ASCII, one line for a line of it
            "```",
            "",
        ]
    )


def _name(source: Any) -> str:
    """Return the name of a source, or the last part of a path on this machine."""
    text = str(source)
    return text if _is_hub_name(text) and not Path(text).exists() else Path(text).name


def _without_paths(config: dict[str, Any]) -> dict[str, Any]:
    """Return a configuration with names in the place of paths."""
    places = {"model": ("source",), "task": ("source", "test_source")}
    return config | {
        part: config[part] | {key: _name(config[part][key]) for key in keys if config[part].get(key)}
        for part, keys in places.items()
    }


def _is_hub_name(source: str) -> bool:
    return (
        source.count("/") == 1 and source.replace("/", "").replace("-", "").replace("_", "").replace(".", "").isalnum()
    )


def _version() -> str:
    try:
        return version("rftlab")
    except PackageNotFoundError:
        return "(unknown)"


def _choices(config: dict[str, Any]) -> list[tuple[str, Any]]:
    """Return the settings that readers need first, by dotted names."""
    settings = [
        (name, value) for name, value in flat_config(config["design"]).items() if value not in (None, (), [], "")
    ]
    settings += [(f"optimizer.{name}", value) for name, value in config["optimizer"].items()]
    settings += [(f"lora.{name}", value) for name, value in config["lora"].items() if config["lora"].get("rank")]
    settings += [(f"rewards.{name}", f"weight {own['weight']}") for name, own in config.get("rewards", {}).items()]
    return settings + [(name, config[name]) for name in ("temperature", "top_p", "top_k", "min_p") if name in config]


def _curve(run: StoredRun, done: int) -> list[str]:
    """Return a table of a few evaluations up to a round, including the first and the last."""
    place = run.folder / "curve.parquet"
    try:
        frame = pd.read_parquet(place) if path_kind(place) == FILE else pd.DataFrame()
        frame = frame[frame["round"] <= done] if "round" in frame else frame
    except (OSError, ValueError, TypeError):
        frame = pd.DataFrame()
    names = [name for name in COLUMNS if name in frame and frame[name].dtype.kind in "if"]
    if not names or not len(frame):
        return ["None was found beside the weights."]
    every = max(1, -(-len(frame) // ROWS))
    shown = frame.iloc[sorted({*range(0, len(frame), every), len(frame) - 1})]
    rows = [
        " | ".join(f"{value:.3f}" if isinstance(value, float) else f"{value}" for value in row)
        for row in shown[names].itertuples(index=False)
    ]
    return [f"| {' | '.join(names)} |", "|" + "---|" * len(names), *(f"| {row} |" for row in rows)]


def _code(value: Any) -> str:
    """Return any text as Markdown code on one line, also inside a table."""
    text = plain(str(value)).replace("`", "'").replace("|", "/")
    return f"`{text[:200] or ' '}`"
