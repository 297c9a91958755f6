"""The state with which a training goes on as if it had never stopped, as named tensors: weights, and the optimiser's of
each parameter."""

from collections.abc import Iterable
from pathlib import Path

import torch
from safetensors.torch import load_file, save_file
from torch import nn

WEIGHTS, MOMENTS = "model.safetensors", "optimizer.safetensors"

Named = Iterable[tuple[str, nn.Parameter]]


def moment_files(parameters: Named, optimizer: torch.optim.Optimizer) -> dict:
    """Files for `rftlab.shared.plumbing.files.write_folder`. Moments have the names `<parameter>/<tensor>`."""
    named = dict(parameters)
    weights = {name: parameter.detach().contiguous() for name, parameter in named.items()}
    moments = {
        f"{name}/{key}": value.contiguous()
        for name, parameter in named.items()
        for key, value in optimizer.state.get(parameter, {}).items()
    }
    return {WEIGHTS: lambda path: save_file(weights, path), MOMENTS: lambda path: save_file(moments, path)}


def restore(place: Path, parameters: Named, optimizer: torch.optim.Optimizer) -> None:
    """Put parameters and their optimiser where they were when the files of a folder were written."""
    weights, moments = load_file(place / WEIGHTS), load_file(place / MOMENTS)
    with torch.no_grad():
        for name, parameter in parameters:
            parameter.copy_(weights[name])
            mine = {key.rpartition("/")[2]: value for key, value in moments.items() if key.rpartition("/")[0] == name}
            if mine:
                optimizer.state[parameter] = {key: value.to(parameter.device) for key, value in mine.items()}
