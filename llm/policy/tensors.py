"""Handle a policy's tensors by name: adapters, whole weights, and the state from which a training resumes exactly.

LoRA (2106.09685): a frozen weight W (out, in) is read as W + alpha / rank B A, and only A (rank, in) and B (out, rank)
are trained. B starts at 0, so the first policy is the base policy. peft inserts the adapters into the model, which
keeps its class and lists them itself."""

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType
from typing import Any

import torch
from safetensors.torch import load_file, save_file
from torch import nn
from transformers import PreTrainedModel
from transformers.pytorch_utils import Conv1D

from rftlab.llm.config import LoRA
from rftlab.shared.plumbing.errors import UserError, check_choice

ADAPTER = "default"
"""Name of the only adapter in a layer."""


def library(lora: LoRA) -> ModuleType | None:
    """Return the package peft, or None where a run has no adapters. Raises UserError where it is missing."""
    if lora.rank == 0:
        return None
    try:
        import peft
    except ImportError as error:
        raise UserError(
            f"lora.rank = {lora.rank} needs the package peft: {error}; pip install '.[lora]' in rftlab's folder"
        ) from None
    return peft


def with_adapters(model: PreTrainedModel, lora: LoRA, seed: int) -> PreTrainedModel:
    """Return the model itself, now with adapters drawn from a seed and everything else frozen; unchanged for rank 0."""
    peft = library(lora)
    if peft is None:
        return model
    config = peft.LoraConfig(r=lora.rank, lora_alpha=lora.alpha, target_modules=_targets(model, lora), lora_dropout=0.0)
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        return peft.inject_adapter_in_model(config, model, ADAPTER)


def _targets(model: PreTrainedModel, lora: LoRA) -> list[str]:
    """Return the full names of the layers that get adapters: linear ones, without the head."""
    head = model.get_output_embeddings()
    full = [
        name for name, module in model.named_modules() if isinstance(module, nn.Linear | Conv1D) and module is not head
    ]
    short = {name: name.rpartition(".")[2] for name in full}
    for target in lora.targets:
        check_choice("lora.targets", target, tuple(sorted(set(short.values()))))
    return [name for name in full if not lora.targets or short[name] in lora.targets]


def adapted_layers(model: nn.Module) -> dict[str, Any]:
    """Return the layers that have adapters, by name."""
    return {name: module for name, module in model.named_modules() if hasattr(module, "lora_A")}


@contextmanager
def turned_off(model: nn.Module) -> Iterator[None]:
    """Turn the adapters off inside the block, so that the model is the base model."""
    layers = adapted_layers(model).values()
    for layer in layers:
        layer.enable_adapters(False)
    try:
        yield
    finally:
        for layer in layers:
            layer.enable_adapters(True)


def base_weights(model: nn.Module) -> Iterator[tuple[str, torch.Tensor]]:
    """Yield names and tensors of the base model without adapters; tied ones once."""
    layers = adapted_layers(model)
    for name, parameter in model.named_parameters():
        if name.partition(".lora_")[0] not in layers:
            yield name.replace(".base_layer.", "."), parameter


def write_adapter(folder: Path, model: nn.Module, lora: LoRA, source: str) -> None:
    """Write adapters in peft's format, to a folder that exists. source: name of their base model."""
    peft = library(lora)
    assert peft is not None  # the model has adapters
    weights = {
        f"base_model.model.{name.replace(f'.{ADAPTER}.', '.')}": parameter.detach().cpu().contiguous()
        for name, parameter in model.named_parameters()
        if ".lora_" in name
    }
    save_file(weights, folder / "adapter_model.safetensors", metadata={"format": "pt"})
    config = peft.LoraConfig(
        r=lora.rank,
        lora_alpha=lora.alpha,
        lora_dropout=0.0,
        target_modules=list(adapted_layers(model)),
        task_type="CAUSAL_LM",
        base_model_name_or_path=source,
        inference_mode=True,
    )
    config.save_pretrained(folder)


@torch.no_grad()
def whole_weights(model: nn.Module) -> Iterator[tuple[str, torch.Tensor]]:
    """Yield names and tensors of the model without adapters that is the same policy: W + alpha / rank B A, computed on
    demand; tied ones once."""
    layers = adapted_layers(model)
    for name, parameter in base_weights(model):
        layer, _, kind = name.rpartition(".")
        adapted = layer in layers and kind == "weight"
        yield name, parameter + layers[layer].get_delta_weight(ADAPTER) if adapted else parameter


WEIGHTS, MOMENTS = "model.safetensors", "optimizer.safetensors"

Named = Iterable[tuple[str, nn.Parameter]]


def moment_files(parameters: Named, optimizer: torch.optim.Optimizer) -> dict:
    """Return files for `rftlab.shared.plumbing.files.write_folder`: the weights, and the optimiser's moments under the
    names `<parameter>/<tensor>`."""
    named = dict(parameters)
    weights = {name: parameter.detach().contiguous() for name, parameter in named.items()}
    moments = {
        f"{name}/{key}": value.contiguous()
        for name, parameter in named.items()
        for key, value in optimizer.state.get(parameter, {}).items()
    }
    return {WEIGHTS: lambda path: save_file(weights, path), MOMENTS: lambda path: save_file(moments, path)}


def restore_moments(place: Path, parameters: Named, optimizer: torch.optim.Optimizer) -> None:
    """Restore parameters and their optimiser from the files of a folder."""
    weights, moments = load_file(place / WEIGHTS), load_file(place / MOMENTS)
    with torch.no_grad():
        for name, parameter in parameters:
            parameter.copy_(weights[name])
            mine = {key.rpartition("/")[2]: value for key, value in moments.items() if key.rpartition("/")[0] == name}
            if mine:
                optimizer.state[parameter] = {key: value.to(parameter.device) for key, value in mine.items()}
