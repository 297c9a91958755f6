"""Read the shape of a model, the numbers of its architecture that a plan needs, without its weights and without
torch."""

import json
import re
from pathlib import Path
from typing import NamedTuple

from rftlab.llm.config import MAX_DEPTH, MAX_WIDTH, SMOLLM2, TINY, LoRA, Model
from rftlab.llm.tasks.arithmetic import SYMBOLS
from rftlab.shared.plumbing.errors import UserError, check, check_choice
from rftlab.shared.plumbing.folders import LARGEST

FAMILIES = ("llama", "mistral", "qwen2", "olmo2")
"""Model families (`model_type` of a config.json) whose blocks are known."""


SIZES, DERIVED = (
    ("hidden_size", "num_attention_heads", "intermediate_size", "num_hidden_layers", "vocab_size"),
    ("num_key_value_heads", "head_dim"),
)
"""Required entries of a model's config.json, and entries with defaults."""
MAX = (
    (re.compile(r"(layers?|blocks?|depths?|heads?|experts?)$"), MAX_DEPTH),
    (re.compile(r"(size|dim|width|hidden|embd|inner|model|ff|ffn|rank)$"), MAX_WIDTH),
)
"""Largest values of numbers in a config.json, by the end of their names. They are above those of every model, and small
enough that building a model ends."""
KERNELS = (None, "eager", "sdpa", "flash_attention_2", "flash_attention_3", "grouped_mm", "batched_mm")
"""Implementations of attention and of experts that a config.json may name."""


class Shape(NamedTuple):
    """Shape of a decoder with gated feed-forward layers and root-mean-square norms."""

    vocabulary: int
    hidden: int
    layers: int
    heads: int
    kv_heads: int
    head_dim: int
    ffn: int
    tied: bool
    """Whether the head shares the embedding's weights."""
    biases: int = 0
    """Number of bias parameters in a block."""
    after: bool = False
    """True for norms of queries, keys and the outputs of sublayers, as in OLMo 2; False for norms of the inputs of
    attention and of the feed-forward layer."""
    rank: int = 0
    """Rank of adapters besides frozen weights; 0: all weights are trained."""
    targets: tuple[str, ...] = ()
    """Layers of a block that have adapters."""

    @property
    def queries(self) -> int:
        """Width of all queries of a token."""
        return self.heads * self.head_dim

    @property
    def keys(self) -> int:
        """Width of all keys of a token; values are as wide."""
        return self.kv_heads * self.head_dim

    @property
    def norms(self) -> tuple[int, ...]:
        """Widths of the norms of a block."""
        return (self.queries, self.keys, self.hidden, self.hidden) if self.after else (self.hidden, self.hidden)

    @property
    def block_products(self) -> int:
        """Number of a block's weights that multiply every token."""
        return self.hidden * (2 * self.queries + 2 * self.keys + 3 * self.ffn)

    @property
    def head(self) -> int:
        """Number of weights of the head; the embedding has as many."""
        return self.vocabulary * self.hidden

    @property
    def body_products(self) -> int:
        """Number of weights of all blocks that multiply every token."""
        return self.layers * self.block_products

    @property
    def parameters(self) -> int:
        """Number of parameters of the model without adapters; tied ones count once."""
        blocks = self.body_products + self.layers * (self.biases + sum(self.norms))
        return blocks + self.hidden + self.head * (1 if self.tied else 2)

    @property
    def linear(self) -> dict[str, tuple[int, int]]:
        """Layers of a block that can have adapters, with the widths of their input and output."""
        attention = {
            "q_proj": (self.hidden, self.queries),
            "k_proj": (self.hidden, self.keys),
            "v_proj": (self.hidden, self.keys),
        }
        feeding = {
            "gate_proj": (self.hidden, self.ffn),
            "up_proj": (self.hidden, self.ffn),
            "down_proj": (self.ffn, self.hidden),
        }
        return attention | {"o_proj": (self.queries, self.hidden)} | feeding

    @property
    def adapters(self) -> int:
        """Number of parameters of all adapters."""
        return self.layers * self.rank * sum(sum(self.linear[name]) for name in self.targets)

    @property
    def trained(self) -> int:
        """Number of parameters that are trained."""
        return self.adapters if self.rank else self.parameters


KNOWN = {
    SMOLLM2: Shape(49152, 576, 30, 9, 3, 64, 1536, tied=True),
    "Qwen/Qwen2.5-0.5B-Instruct": Shape(151936, 896, 24, 14, 2, 64, 4864, tied=True, biases=14 * 64 + 2 * 2 * 64),
    "meta-llama/Llama-3.2-1B-Instruct": Shape(128256, 2048, 16, 32, 8, 64, 8192, tied=True),
    "allenai/OLMo-2-0425-1B-Instruct": Shape(100352, 2048, 16, 16, 16, 128, 8192, tied=False, after=True),
}
"""Shapes of models that need no download, from their config.json."""
GATED = ("meta-llama/",)
"""Prefixes of the names of gated models on the hub, whose owner must grant access."""


def adapted(shape: Shape, lora: LoRA) -> Shape:
    """Return the shape with a run's adapters. Raises UserError for a target that no block has."""
    for target in lora.targets:
        check_choice("lora.targets", target, tuple(sorted(shape.linear)))
    return shape._replace(rank=lora.rank, targets=(lora.targets or tuple(shape.linear)) if lora.rank else ())


def read_shape(model: Model) -> Shape:
    """Return the shape of a run's model. Raises UserError for one that cannot be read or is of an unknown kind."""
    if model.source == TINY:
        tiny = model.tiny
        return Shape(
            len(SYMBOLS),
            tiny.width,
            tiny.layers,
            tiny.heads,
            tiny.heads,
            tiny.width // tiny.heads,
            tiny.hidden,
            tied=False,
        )
    folder = Path(model.source)
    if model.source in KNOWN and not folder.is_dir():
        return KNOWN[model.source]
    try:
        config = raw_config(model.source) if folder.is_dir() else _from_hub(model.source)
    except UserError:
        raise
    except Exception as error:  # the hub's client raises exceptions of many libraries
        said = " ".join(str(error).split()) or type(error).__name__
        allowed = f"allowed: {TINY}, {', '.join(KNOWN)}, a folder with a config.json, or a name on the hub"
        raise UserError(f"model.source = {model.source!r}: its shape cannot be read: {said[:200]}; {allowed}") from None
    return shape_from(model.source, config)


def raw_config(source: str) -> dict:
    """Return the config.json of a folder, or of a model on the hub, unchanged. Raises UserError where a number in it is
    larger than any model has, or where it names a kernel that is not the library's own.

    Without the check, such a number would make the loops over layers run without end.
    """
    if Path(source).is_dir():
        _check_files(source)
        config = json.loads((Path(source) / "config.json").read_bytes())
    else:
        from transformers import PreTrainedConfig

        config = PreTrainedConfig.get_config_dict(source)[0]
    check_config(source, config)
    return config


def check_config(source: str, config: dict) -> None:
    """Raise UserError where a number of a config.json is larger than any model has, or where it names a kernel that is
    not the library's own. A kernel from the hub would be a program that comes with the model."""
    parts = [("", config)]
    while parts:
        name, value = parts.pop()
        if name.endswith("_implementation"):
            named = value.values() if isinstance(value, dict) else [value]
            said = f"model.source = {source!r}: its config.json has {name} = {str(value)[:80]!r}"
            check(all(one in KERNELS for one in named), f"{said}; allowed: {', '.join(KERNELS[1:])}, or none")
        for ending, most in MAX:
            fine = not isinstance(value, int | float) or not ending.search(name) or value <= most
            check(fine, f"model.source = {source!r}: its config.json has {name} = {value}; allowed: at most {most}")
        inside = (
            value.items()
            if isinstance(value, dict)
            else [(name, one) for one in value]
            if isinstance(value, list)
            else ()
        )
        parts += inside


def _check_files(source: str) -> None:
    """Raise UserError where a folder holds an adapter, which would be added to the model unasked, or an entry that is
    neither file nor folder, such as a pipe, on which reading waits. Links are followed, because the hub's cache has
    them."""
    check(
        not (Path(source) / "adapter_config.json").exists(),
        f"model.source = {source!r} holds an adapter; allowed: a folder of a whole model, as `rftlab export "
        "--merge` writes it",
    )
    for path in Path(source).iterdir():
        good = not path.exists() or path.is_file() or path.is_dir()
        check(
            good,
            f"model.source = {source!r}: {path.name} in it is neither a file nor a folder; allowed: a folder of files",
        )
        check(
            path.suffix != ".json" or not path.is_file() or path.stat().st_size <= LARGEST,
            f"model.source = {source!r}: {path.name} has more than {LARGEST} bytes; allowed: at most that",
        )
    _check_shards(source)


def _check_shards(source: str) -> None:
    """Raise UserError where a folder's index refers to weights outside of safetensors files in the folder. Such files
    would be read whatever they are."""
    index = Path(source) / "model.safetensors.index.json"
    if not index.is_file():
        return
    try:
        shards = list(json.loads(index.read_bytes())["weight_map"].values())
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        raise UserError(f"model.source = {source!r}: {index.name} is no index of weights") from None
    for shard in shards:
        good = isinstance(shard, str) and Path(shard).name == shard and shard.endswith(".safetensors")
        check(
            good,
            f"model.source = {source!r}: {index.name} has weights in {str(shard)[:80]!r}; allowed: safetensors files "
            "of the folder",
        )


def _from_hub(name: str) -> dict:
    from transformers import AutoConfig

    raw_config(name)
    return AutoConfig.from_pretrained(name, trust_remote_code=False).to_dict()


def shape_from(source: str, config: dict) -> Shape:
    """Return the shape in a config.json. Raises UserError for an unknown kind of model, and where a number is
    missing."""
    kind = config.get("model_type") if isinstance(config, dict) else None
    check(
        kind in FAMILIES, f"model.source = {source!r}: its model_type is {kind!r}; a plan knows: {', '.join(FAMILIES)}"
    )
    for name in SIZES:
        check(
            name in config,
            f"model.source = {source!r}: its config.json has no {name!r}; allowed: that of a "
            f"{' or '.join(FAMILIES)} model",
        )
    for name in (*SIZES, *(name for name in DERIVED if config.get(name) is not None)):
        good = type(config[name]) is int and config[name] >= 1
        check(
            good,
            f"model.source = {source!r}: its config.json has {name} = {config[name]!r}; allowed: a whole "
            "number of 1 or more",
        )
    hidden, heads, ffn, layers, vocabulary = (config[name] for name in SIZES)
    kv_heads = config.get("num_key_value_heads") or heads
    head_dim = config.get("head_dim") or hidden // heads
    queries, keys = heads * head_dim, kv_heads * head_dim
    biases = queries + 2 * keys if kind == "qwen2" else 0
    biases += (queries + 2 * keys + hidden) * bool(config.get("attention_bias")) + (2 * ffn + hidden) * bool(
        config.get("mlp_bias")
    )
    return Shape(
        vocabulary,
        hidden,
        layers,
        heads,
        kv_heads,
        head_dim,
        ffn,
        bool(config.get("tie_word_embeddings")),
        biases,
        after=kind == "olmo2",
    )
