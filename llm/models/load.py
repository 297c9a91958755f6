"""Load a model that can be trained, its codec, and the problems that fit it, from a configuration."""

import base64
import json
import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import torch
from huggingface_hub.errors import GatedRepoError, RepositoryNotFoundError
from safetensors import safe_open
from transformers import AutoModelForCausalLM, AutoTokenizer, PreTrainedModel
from transformers.utils.logging import disable_progress_bar

from rftlab.llm.budget.shapes import raw_config
from rftlab.llm.config import SMOLLM2, TINY, LLMRun
from rftlab.llm.models.smollm2 import smollm2_folder
from rftlab.llm.models.tiny import pretrained
from rftlab.llm.policy.tensors import library, with_adapters
from rftlab.llm.tasks.codec import Codec, SymbolCodec, TextCodec, is_failure
from rftlab.llm.tasks.load import load_task
from rftlab.llm.tasks.task import Prompt, fitting
from rftlab.shared.plumbing.callbacks import noop
from rftlab.shared.plumbing.errors import UserError, check

LARGEST = 1000
"""Largest number of characters that a tokenizer's rules may make of one; models in use write at most one for one. The
library applies the rules in this process, without a limit of its own."""


def check_growth(folder: Path) -> None:
    """Raise UserError where rules in a folder's tokenizer.json may write more than LARGEST characters for one, or where
    a table of characters goes beyond its end. A file that is no JSON is left to the library, which reports it."""
    place = folder / "tokenizer.json"
    rules: Any = {}
    try:
        rules = json.loads(place.read_bytes()) if place.is_file() else {}
    except (ValueError, RecursionError):
        return
    for part in ("normalizer", "decoder") if isinstance(rules, dict) else ():
        try:
            times = _growth(rules.get(part))
        except ValueError as error:
            raise UserError(f"model.source = {str(folder)!r}: the {part} of its tokenizer has {error}") from None
        check(
            times <= LARGEST,
            f"model.source = {str(folder)!r}: the {part} of its tokenizer may write more than {LARGEST} characters "
            f"for one; allowed: up to {LARGEST}",
        )


def _growth(rule: Any) -> int:
    """Return the number of characters that one may become by all replacements in a rule, one after the other. Raises
    ValueError as `_longest` does."""
    times, parts = 1, [rule]
    while parts and times <= LARGEST:
        one = parts.pop()
        if isinstance(one, dict):
            if one.get("type") == "Replace":
                times *= max(1, len(str(one.get("content", ""))))
            elif one.get("type") == "Precompiled":
                times *= max(1, _longest(one.get("precompiled_charsmap")))
            parts += one.values()
        elif isinstance(one, list):
            parts += one
    return times


def _longest(table: Any) -> int:
    """Return the bytes of the longest text in a table of characters, SentencePiece's `precompiled_charsmap`. In base64
    it has the size of a trie (4 bytes, little-endian), the trie, and texts that end in a zero byte. Raises ValueError
    for others.

    The library allocates as much memory as the size says, before it checks that the trie is there.
    """
    try:
        read = base64.b64decode(table, validate=True)
    except (TypeError, ValueError):
        raise ValueError("a table of characters that is no base64") from None
    size = int.from_bytes(read[:4], "little")
    if size > len(read) - 4:
        raise ValueError(f"a table of characters of {size} bytes, of which {max(len(read) - 4, 0)} are there")
    return max(len(text) for text in read[4 + size :].split(b"\0"))


class Problems(NamedTuple):
    """A split as token ids for a model."""

    prompts: tuple[tuple[int, ...], ...]
    """(n,) token ids of each prompt."""
    answers: tuple[str, ...]
    """(n,) true answers."""
    numbers: tuple[int, ...]
    """(n,) numbers of the problems in the task's split, from 0; the split includes those with prompts that are too
    long."""
    shown: tuple[Prompt, ...] = ()
    """(n,) prompts before a model's chat template."""
    rows: tuple[dict[str, Any], ...] = ()
    """(n,) columns of a user's own data; () for other tasks."""
    solutions: tuple[str, ...] = ()
    """(n,) a right response to each; () for tasks without such responses."""

    def take(self, rows) -> "Problems":
        """Return the problems in some rows."""
        columns: Iterator[Any] = (tuple(column[i] for i in rows) if column else () for column in self)
        return Problems(*columns)


class Data(NamedTuple):
    """The problems of a run."""

    verifier: str
    train: Problems
    test: Problems
    """Problems of the split `evaluation.split`."""
    left_out: dict[str, int]
    """Number of problems of each split whose prompts are too long."""
    sha256: str
    """Checksum of the whole task."""


def load_model(
    run: LLMRun, progress: Callable[[int, float], None] = noop, remark: Callable[[str], None] = noop
) -> tuple[PreTrainedModel, Codec]:
    """Return the base model in float32 on its device, with the run's adapters, and its codec.

    progress, remark: as for `rftlab.llm.models.tiny.pretrained`.
    Raises UserError for an incomplete source, a device that is missing, and adapters that cannot be made.
    """
    library(run.lora)
    try:
        torch.empty(1, device=run.compute.device)
    except (RuntimeError, AssertionError) as error:
        raise UserError(
            f"compute.device = {run.compute.device!r}: {_line(error)}; allowed: cpu, or cuda with a GPU and "
            "its build of torch"
        ) from None
    model: Any
    codec: Codec
    if run.model.source == TINY:
        model, codec = pretrained(run.task.reading, run.model.tiny, progress, remark), SymbolCodec()
    else:
        model, codec = _from_source(str(smollm2_folder(remark)) if run.model.source == SMOLLM2 else run.model.source)
    room = getattr(model.config, "max_position_embeddings", None)
    longest = run.model.max_prompt_length + run.model.max_response_length
    check(
        room is None or longest <= room,
        f"model.max_prompt_length + model.max_response_length = {longest}; allowed: at most {room}, what the "
        "model has positions for",
    )
    try:
        return with_adapters(model.to(run.compute.device), run.lora, run.seed), codec
    except RuntimeError as error:
        raise UserError(f"compute.device = {run.compute.device!r}: the model does not fit: {_line(error)}") from None


def _from_source(source: str) -> tuple[PreTrainedModel, Codec]:
    local = Path(source).is_dir()
    for package in ("transformers", "huggingface_hub"):
        logging.getLogger(package).setLevel(logging.ERROR)
    disable_progress_bar()
    with _named(source, "configuration"):
        raw_config(source)
    with _named(source, "tokenizer"):
        check_growth(Path(source))
        tokenizer = AutoTokenizer.from_pretrained(source, local_files_only=local, trust_remote_code=False)
    with _named(source, "causal language model"):
        safe: dict[str, Any] = {"use_safetensors": True, "trust_remote_code": False, "output_loading_info": True}
        known: Any = AutoModelForCausalLM.from_pretrained(source, dtype=torch.float32, local_files_only=local, **safe)
    model, info = known
    missing = sorted(info["missing_keys"])
    check(
        not missing,
        f"model.source = {source!r}: {len(missing)} weights are missing, {', '.join(missing[:2])} among them; "
        "allowed: a folder with all weights",
    )
    _check_weights(source, model)
    return model, TextCodec(tokenizer, model.generation_config, model.get_input_embeddings().num_embeddings)


def _check_weights(source: str, model: PreTrainedModel) -> None:
    """Raise UserError where a weight is not finite, or is no real number in a folder's files. The library would convert
    whole and complex numbers silently."""
    for path in sorted(Path(source).glob("*.safetensors")):
        with safe_open(path, "pt") as stored:
            kinds = {name: stored.get_slice(name).get_dtype() for name in stored.keys()}  # noqa: SIM118
        for name, _ in model.named_parameters():
            kind = kinds.get(name, "F32")
            said = f"model.source = {source!r}: {path.name} has {name} of type {kind}"
            check(kind in ("F64", "F32", "F16", "BF16"), f"{said}; allowed: F32, BF16, F16 or F64")
    for name, weight in model.named_parameters():
        finite = bool(torch.isfinite(weight).all())
        check(finite, f"model.source = {source!r}: {name} has numbers that are not finite; allowed: a whole model")


@contextmanager
def _named(source: str, what: str) -> Iterator[None]:
    """Raise UserError where a part of a model cannot be read."""
    try:
        yield
    except UserError:
        raise
    except BaseException as error:  # the library raises exceptions of many others
        if not is_failure(error):
            raise
        raise UserError(f"model.source = {source!r}: no {what} can be read: {_said(error, source)}") from None


def _said(error: BaseException, source: str) -> str:
    """Return an error as one line, with what a user can do where the hub refuses access, and with the reason where a
    model's own program is not run."""
    if "trust_remote_code" in str(error):
        return (
            "it needs code that comes with the model, which is never run; allowed: a model that "
            "transformers knows by itself"
        )
    cause: BaseException | None = error
    while cause is not None:
        if isinstance(cause, GatedRepoError):
            return (
                f"its owner must grant access: accept the terms at https://huggingface.co/{source}, then "
                "`hf auth login`, or HF_TOKEN in the environment"
            )
        if isinstance(cause, RepositoryNotFoundError):
            return (
                "the hub has no such model, or does not show it to you: correct the name, or `hf auth "
                "login`, or HF_TOKEN in the environment"
            )
        cause = cause.__cause__ or cause.__context__
    return _line(error)


def _line(error: BaseException) -> str:
    """Return the text of an error, cut to a part of one line."""
    said = " ".join(str(error).split()) or type(error).__name__
    return said if len(said) <= 200 else said[:197] + "..."


def load_data(run: LLMRun, codec: Codec) -> Data:
    """Return the training problems and the unseen ones; those with longer prompts than the limit are left out and
    counted."""
    task = load_task(run.task)
    parts, left_out = {}, {}
    for name in ("train", run.evaluation.split):
        split = task[name]
        ids = tuple(map(tuple, codec.encode(split.prompts)))
        problems = Problems(ids, split.answers, tuple(range(len(split))), split.prompts, split.rows, split.solutions)
        rows = fitting(problems.prompts, run.model.max_prompt_length)
        left_out[name], parts[name] = len(problems.prompts) - len(rows), problems.take(rows)
    train, size = parts["train"], run.design.batch_size
    n = len(train.answers)
    check(size <= n, f"batch_size = {size} is larger than the training set; allowed: 1 to {n}")
    return Data(task.verifier, train, parts[run.evaluation.split], left_out, task.sha256)
