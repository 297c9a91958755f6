"""Checks 1 to 4 and 9: the driver, losses, log-probabilities and gradients, kernels, memory."""

import gc
import os
import shutil
import sysconfig
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils._python_dispatch import TorchDispatchMode

import rftlab as rl
from dev.gpu_check.bench import CODEC, NO_GPU, OTHERS, QWEN, SMOLLM2_SHAPE, Bench, planted
from rftlab.llm.budget.footprint import memory_use
from rftlab.llm.config import Compute
from rftlab.llm.engines.rollouts import Draws
from rftlab.llm.engines.vllm import for_a_cpu, installed_vllm
from rftlab.llm.losses import weights as frozen
from rftlab.llm.losses.inputs import reads_entropy
from rftlab.llm.losses.layout import make_layout
from rftlab.llm.policy.packing import ALONE, Responses
from rftlab.llm.policy.policy import Policy
from rftlab.llm.train import engine_for
from rftlab.llm.training import update
from rftlab.shared.cards import PRESETS
from rftlab.shared.prepare import prepare
from tests.llm.fake_cuda.checks import longest, paper_run
from tests.support.estimators.random_batches import binary, random_batch
from tests.support.estimators.tensors import compiled, laid_out, needed, rounded

LOOKS_AT_ALL = ("clip_cov", "kl_cov", "deepseek_v32", "m2po", "top_entropy")
"""Cards whose mask compares all tokens, and so waits for the device once."""
LOOKED_AT = 1
"""Number of waits to check that advantages on a CPU are finite."""
SPREAD = 0.03
"""Standard deviation of random weights. At SmolLM2's depth the error of bf16 is 0.003 with 0.02, and 0.048 with
0.05."""
DISK = 20e9
"""Bytes of disk for the largest model, its tokenizer and three checkpoints."""
FORTY = 40e9
"""Bytes of memory of the smallest GPU that must fit all three models."""
ROWS, WIDTH = 8, 5


def check_machine(bench: Bench) -> None:
    """Run check 1: the driver supports torch's CUDA, vLLM can be imported, 20 GB of disk are free."""
    if bench.gpu:
        driver, built = driver_version(), tuple(int(part) for part in str(torch.version.cuda).split("."))
        bench.holds(f"driver for CUDA {driver} runs torch built for {built}", runs_on(driver, built))
    else:
        bench.skip("driver against torch's CUDA")
    bench.holds("control: a driver for CUDA 12.8 is refused by torch built for 13.0", not runs_on((12, 8), (13, 0)))
    lacks = compiler_lacks()
    if bench.gpu or not lacks:
        bench.holds("Triton has a C compiler and Python.h", not lacks, lacks)
    else:
        bench.skip("Triton has a C compiler and Python.h", lacks)
    try:
        version, cpu = installed_vllm().__version__, bench.gpu and for_a_cpu()
        bench.holds(f"vLLM {version} imports", not cpu, "it is the build for a CPU" * cpu)
    except rl.UserError as error:
        bench.skip("vLLM imports", str(error))
    bench.within("free disk, bytes", shutil.disk_usage(Path.cwd()).free, least=DISK)


def runs_on(driver: tuple[int, ...], built: tuple[int, ...]) -> bool:
    """Whether a driver for one version of CUDA runs code built for another, which it does within a major version."""
    return driver[0] >= built[0]


def compiler_lacks() -> str:
    """Return what Triton lacks to compile its launcher at the first use; empty where nothing is missing."""
    scheme = sysconfig.get_default_scheme().replace("posix_local", "posix_prefix")
    header = Path(sysconfig.get_path("include", scheme)) / "Python.h"
    compiler = os.environ.get("CC") or shutil.which("gcc") or shutil.which("clang")
    lacks = [
        *([] if compiler else ["no gcc, no clang: install a C compiler, or name one in CC"]),
        *([] if header.is_file() else [f"no {header}: install Python's headers, as python3-dev"]),
    ]
    return "; ".join(lacks)


def driver_version() -> tuple[int, int]:
    """Return the newest CUDA that the driver runs."""
    number = getattr(torch._C, "_cuda_getDriverVersion")()  # noqa: B009 (builds without CUDA have none)
    return number // 1000, number % 1000 // 10


class Waits(TorchDispatchMode):
    """Counts calls on a CPU that would wait for a GPU."""

    ASKING = ("_local_scalar_dense", "nonzero", "equal", "is_nonzero", "masked_select", "_unique2")

    def __init__(self) -> None:
        super().__init__()
        self.count = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        indices = args[1] if func._overloadpacket.__name__ == "index" else ()
        by_mask = any(index is not None and index.dtype == torch.bool for index in indices)
        self.count += by_mask or func._overloadpacket.__name__ in self.ASKING
        return func(*args, **(kwargs or {}))


def card_waits(name: str, padded: bool, device: str) -> int:
    """Return how often objective and gradient of a card wait, with given advantages; on a GPU they raise an error
    instead."""
    estimator, shape = PRESETS[name], (ROWS, WIDTH) if padded else (ROWS * WIDTH,)
    torch.manual_seed(0)
    drawn = [-torch.rand(shape, device=device) for _ in range(5)]
    starts = torch.arange(0, ROWS * WIDTH + 1, WIDTH, device=device)
    mask = torch.ones(shape, dtype=torch.bool, device=device)
    named: dict[str, Any] = {"mask": mask} if padded else {"starts": starts}
    logp = drawn[0].requires_grad_()
    layout = named.get("mask"), named.get("starts")
    if estimator.kl.kind != "none" and estimator.kl.anchor == "base":
        named["ref_logp"] = drawn[1]
    if estimator.correction.kind != "none":
        named["sampler_logp"] = drawn[2]
    if reads_entropy(estimator):
        named["entropy"] = -drawn[3]
    if estimator.entropy_target:
        named["bonus"] = 0.01
    named["advantages"] = torch.randn(ROWS, device=device)
    if estimator.aggregation.kind == "prompt_mean":
        named["group"] = torch.arange(ROWS, device=device) // 2

    def run() -> None:
        (-rl.losses.objective(logp, drawn[4], estimator=name, **named)).backward()

    if device == "cpu":
        with Waits() as checked:  # only checks of values on the CPU wait
            make_layout(shape, torch.device("cpu"), *layout)
        with Waits() as seen:
            run()
        return seen.count - checked.count - LOOKED_AT
    run()  # the first call may wait to set things up
    torch.cuda.set_sync_debug_mode("error")
    try:
        run()
        return 0
    except RuntimeError as error:
        if "synchroniz" not in str(error):
            raise
        return 1
    finally:
        torch.cuda.set_sync_debug_mode("default")


def card_gap(name: str, padded: bool, device: str, seed: int = 8000) -> float:
    """Return the largest distance of a card's objective and weights in fp32 from the compiled ones, relative to their
    scale."""
    estimator, rng = PRESETS[name], np.random.default_rng(seed)
    batch = random_batch(rng, fewest=max(4, estimator.advantage.k), shortest=1, longest=6, spreads=(0.5,))
    batch = binary(batch, rng) if estimator.advantage.credit == "pass_at_k" else batch
    batch = batch._replace(logp=np.minimum(batch.logp, 0.0))
    batch, given = rounded(batch, needed(estimator, batch, rng), torch.float32)
    expected = compiled(estimator, batch, batch.logp, given)
    place, arguments = laid_out(batch, given, padded, torch.float32)
    if reads_entropy(estimator):  # a mask compares entropies, given as keys here; a bonus is not in the weights
        arguments["entropy"] = torch.zeros(place.shape) if estimator.has_bonus else arguments["keys"].float()
    arguments = {key: torch.as_tensor(value).detach().to(device) for key, value in arguments.items()}
    logp = arguments["logp"].requires_grad_()
    bonus = 0.01 if estimator.entropy_target else None
    objective = rl.losses.objective(**arguments, estimator=name, bonus=bonus)
    objective.backward()
    scale = 1.0 + float(np.abs(expected.weight).sum()) + abs(expected.kl)
    gaps = np.abs(place.numbers(logp.grad.cpu()) - expected.weight)
    return max(float(gaps.max(initial=0.0)), abs(float(objective.detach()) - expected.objective)) / scale


def check_cards(bench: Bench) -> None:
    """Run check 2: all cards on the device agree with the compiled ones, and none waits for the device."""
    layouts = ("packed", False), ("padded", True)
    gaps = {(name, kind): card_gap(name, padded, bench.device) for name in PRESETS for kind, padded in layouts}
    worst = max(gaps, key=lambda key: gaps[key])
    bench.within(f"{len(PRESETS)} cards against the compiled ones", gaps[worst], most=1e-5, note=f"worst: {worst}")
    waits = {(name, kind): card_waits(name, padded, bench.device) for name in PRESETS for kind, padded in layouts}
    slow = sorted({name for (name, _), count in waits.items() if count})
    text = "no card waits but those whose mask looks at all tokens"
    bench.holds(
        f"{text}, on a CPU by counted calls" if not bench.gpu else text, set(slow) <= set(LOOKS_AT_ALL), str(slow)
    )
    if not bench.gpu:
        bench.skip("the same under CUDA's sync debug mode")
    plain_shares = frozen.token_shares

    def asks(*arguments: Any, **named: Any) -> Any:
        out = plain_shares(*arguments, **named)
        out.sum().item()
        return out

    with planted(frozen, "token_shares", asks):
        bench.within("control: waits with an item() planted", card_waits("grpo", True, bench.device), least=1)


def read_all(policy: Policy, responses: Responses) -> tuple[np.ndarray, np.ndarray]:
    """Return log-probabilities (T,) of all tokens, and the gradient of their weighted sum with respect to all
    weights."""
    policy.model.zero_grad()
    weights = torch.from_numpy(np.cos(np.arange(len(responses.tokens)))).float()
    logp = policy.all_log_probs(responses)
    for rows in policy.micro_batches(responses):
        tokens = np.concatenate([np.arange(responses.starts[r], responses.starts[r + 1]) for r in rows])
        own, _ = policy.log_probs(responses, rows)
        (own * weights[tokens].to(own)).sum().backward()
    gradient = [p.grad.flatten().cpu() for _, p in policy.named_parameters() if p.grad is not None]
    return logp, torch.cat(gradient).double().numpy()


def distance(one: np.ndarray, other: np.ndarray) -> float:
    """Return the distance of two gradients, relative to the first."""
    return float(np.linalg.norm(one - other) / np.linalg.norm(one))


def check_model(bench: Bench) -> None:
    """Run check 3: log-probabilities and gradients in SmolLM2's shape: devices, shared prompts, checkpointing,
    precision."""
    responses = bench.responses(2, 4, 40, 60, spread=20)

    def read(device: str = bench.device, alone: bool = False, temperature: float = 1.0, **more: Any):
        settings: dict[str, Any] = {"precision": "fp32", "micro_tokens": 2048} | more
        compute = Compute(device, **settings)
        policy = Policy(bench.model(SMOLLM2_SHAPE, SPREAD).to(device), compute, temperature)
        if alone:
            policy.sharing = ALONE
        return read_all(policy, responses)

    logp, gradient = read()
    if bench.gpu:
        cpu_logp, cpu_gradient = read("cpu")
        bench.within("log-probabilities, GPU against CPU, fp32", np.abs(logp - cpu_logp).max(), most=1e-4)
        bench.within("gradient, the same", distance(cpu_gradient, gradient), most=1e-3)
    else:
        bench.skip("log-probabilities and gradient, GPU against CPU")
    alone_logp, alone_gradient = read(alone=True)
    bench.within("shared prompts against alone, mean", np.abs(logp - alone_logp).mean(), most=1e-5)
    bench.within("gradient, the same", distance(gradient, alone_gradient), most=1e-3)
    again_logp, again_gradient = read(gradient_checkpointing=True)
    bench.within("checkpointing on and off", np.abs(logp - again_logp).max(), most=1e-5)
    bench.within("gradient, the same", distance(gradient, again_gradient), most=1e-3)
    narrow_logp, _ = read(precision="bf16")
    bench.within("bf16 against fp32, mean", np.abs(logp - narrow_logp).mean(), most=0.03)
    warm = np.abs(logp - read(temperature=1.05)[0]).max()
    bench.within("control: another temperature, largest distance", warm, least=1e-4)


def attention_calls(policy: Policy, responses: Responses) -> set[str]:
    """Return the kinds of attention that a pass with its gradient calls."""
    kinds = [torch.profiler.ProfilerActivity.CPU]
    with torch.profiler.profile(activities=kinds) as profile:
        policy.log_probs(responses, np.arange(len(responses.group)))[0].sum().backward()
    names = {event.key.removeprefix("aten::") for event in profile.key_averages()}
    return {name.removeprefix("_scaled_dot_product_") for name in names if name.startswith("_scaled_dot_product_")}


def check_kernels(bench: Bench) -> None:
    """Run check 4: the attention that runs, and whether sharing a prompt saves time at 120 + 8 x 200 tokens."""
    # the model and passes keep a GPU busy; small ones would measure the time to start kernels
    policy = Policy(bench.model(QWEN).to(bench.device), bench.compute(micro_tokens=8192, logit_rows=512))
    shared, alone = bench.responses(4, 8, 120, 200), bench.responses(2, 1, 120, 200)
    if not bench.gpu:
        shared, alone = bench.responses(1, 4, 40, 30), bench.responses(2, 1, 40, 30)
    calls = attention_calls(policy, alone), attention_calls(policy, shared)
    if bench.gpu:
        flash = any("flash" in name or "cudnn" in name for name in calls[0])
        bench.holds("responses alone take the flash kernel, or cuDNN's", flash, str(calls[0]))
        fused = any("efficient" in name or "cudnn" in name for name in calls[1])
        bench.holds("shared prompts take a fused kernel", fused, str(calls[1]))
    else:
        bench.skip("flash alone, fused with a mask", f"{NO_GPU}; seen: {sorted(calls[0] | calls[1])}")
    maths = any("math" in name for name in calls[0] | calls[1])
    bench.holds("never the unfused kernel", not maths)
    with sdpa_kernel(SDPBackend.MATH):
        seen = any("math" in name for name in attention_calls(policy, shared))
    bench.holds("control: the unfused kernel is seen where it is forced", seen)
    if not bench.gpu:
        return bench.skip("speed of shared prompts beside alone")
    ratio = _seconds(policy, shared, True) / _seconds(policy, shared, False)
    whole, apart = 120 + 8 * 200, 8 * (120 + 200)
    pairs = (ratio * whole**2 - 8 * 320**2) / max(apart - ratio * whole, 1e-9) / policy.model.config.hidden_size
    note = f"PAIRS of llm/policy/packing.py would be {pairs:.1f}" if ratio < 0.95 else ""
    bench.within("shared prompts, times as fast as alone", ratio, least=0.7, note=note)


def _seconds(policy: Policy, responses: Responses, alone: bool) -> float:
    """Return the seconds of a pass with its gradient, the fastest of five."""
    sharing, times = policy.sharing, []
    policy.sharing = ALONE if alone else sharing
    for _ in range(5):
        torch.cuda.synchronize()
        began = time.perf_counter()
        for rows in policy.micro_batches(responses):
            policy.log_probs(responses, rows)[0].sum().backward()
        torch.cuda.synchronize()
        times.append(time.perf_counter() - began)
    policy.sharing = sharing
    return min(times)


def check_memory(bench: Bench, name: str = "") -> None:
    """Run check 9: the longest texts of a model's round with vLLM within 40 GB, each phase compared with the plan."""
    if not bench.gpu:
        return bench.skip(
            "peaks beside the plan under 40 GB", f"{NO_GPU}; tests/llm/fake_cuda holds the trainer's part"
        )
    before, peaks = bench.used(), {}
    run = paper_run(name)
    run = replace(run, design=replace(run.design, batch_size=2))
    total = torch.cuda.get_device_properties(0).total_memory

    def limit(asleep: float = 0.0) -> None:
        """Limit torch on a larger GPU as if it had 40 GB; asleep: bytes that vLLM freed, which torch counts as
        taken."""
        if total > 1.2 * FORTY:
            torch.cuda.set_per_process_memory_fraction(min(1.0, (FORTY + asleep) / total))

    def rest() -> None:
        awake = bench.used()
        engine.rest()
        limit(awake - bench.used())

    limit()
    policy = Policy(bench.model(name).to("cuda"), run.compute)
    engine, responses = engine_for(run, policy, CODEC), longest(run)
    reference, optimizer = policy.reference(), update.make_optimizer(policy, run.optimizer)
    counts = np.full(run.compute.sample_rows // 8, 8)
    prompts = [responses.prompts[0]] * len(counts)

    def note(phase: str) -> None:
        peaks[phase] = bench.used() - before
        gc.collect()
        torch.cuda.empty_cache()

    rest()
    for _, weight in policy.named_parameters():
        weight.grad = torch.zeros_like(weight)
    update.step(policy, optimizer, run.optimizer, 0)
    note("first")
    limit()
    engine.sync(policy)
    engine.sample(prompts, np.arange(len(counts)), counts, Draws(0, 0, 0), 1.0, 64)
    note("sample")
    ref = reference.all_log_probs(responses)
    note("log_probs")
    rest()
    rewards = np.arange(len(responses.group)) % 2.0
    batch = prepare(run.design.estimator, rewards, responses.group, responses.starts, ref, ref)
    update.accumulate(policy, run.design.estimator, batch, responses, on_policy=True)
    update.step(policy, optimizer, run.optimizer, 1)
    note("update")
    plan = memory_use(run, bench.shape(name))
    for phase in plan.phases:
        bench.within(f"{name}, {phase}: measured / planned", peaks[phase] / plan.total(phase), 0.85, 1.05)
    bench.within(f"{name}: peak, bytes", max(peaks.values()), most=FORTY)


MODELS = (QWEN, *OTHERS)
