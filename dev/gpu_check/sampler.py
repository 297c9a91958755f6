"""Checks 5 to 8 and 10, of one engine: vLLM's runner, its weights after every sync, sleep, distributions, speed."""

import time
from dataclasses import replace
from functools import partial
from statistics import median
from typing import Any, NamedTuple

import numpy as np
import torch
from scipy import stats

from dev.gpu_check.bench import CODEC, NO_GPU, QWEN, Bench, plan_device, planted
from rftlab.llm.budget.plan import Assumed, estimate_duration
from rftlab.llm.config import LLMRun, Model
from rftlab.llm.engines import vllm as engines
from rftlab.llm.engines.rollouts import Draws, HFEngine
from rftlab.llm.policy.packing import token_indices
from rftlab.llm.policy.policy import Policy
from rftlab.llm.training.update import accumulate
from rftlab.shared.cards import preset
from rftlab.shared.design import Design
from rftlab.shared.plumbing.errors import UserError
from rftlab.shared.prepare import prepare

PROMPT, RESPONSE = 120, 200
"""Tokens of a prompt and of a response on GSM8K, the plan's usual lengths."""
BINS = 50
"""Number of groups of tokens with similar probability, about equal in mass."""
CYCLES = 20
ALIKE = {"fp32": 0.95, "bf16": 0.6}
"""Smallest share of tokens that must be equal in batches of different sizes. In bf16 products round differently, which
changes up to one token in a hundred, and with it all that follow."""
SPREAD = {"cuda": 0.02, "cpu": 0.1}
"""Standard deviation of random weights. Narrow models need more, so that their distributions are not flat."""


class Sampler(NamedTuple):
    """An engine with its policy."""

    engine: Any
    policy: Policy
    run: LLMRun


def make_run(bench: Bench) -> LLMRun:
    """Return the settings of the engine."""
    rows = (1024, 4.0) if bench.gpu else (64, 0.1)
    compute = bench.compute(engine="vllm", sample_rows=rows[0], cache_gb=rows[1], micro_tokens=8192, logit_rows=512)
    return LLMRun(model=Model(max_prompt_length=256, max_response_length=256), compute=compute)


def make_sampler(bench: Bench) -> Sampler:
    """Return vLLM with random weights in the shape of Qwen2.5-0.5B; without a GPU a small model, and the Hugging Face
    engine where vLLM is not installed."""
    run = make_run(bench)
    policy = Policy(bench.model(QWEN, SPREAD[bench.device]).to(bench.device), run.compute)
    try:
        engines.installed_vllm()
    except UserError:
        return Sampler(HFEngine(policy, CODEC.stops), policy, run)
    return Sampler(engines.VLLMEngine(run, policy, CODEC), policy, run)


def sample(
    sampler: Sampler, prompts: int, rollouts: int, length: int, limit: int, temperature: float = 1.0, seed: int = 0
):
    """Sample rollouts to random prompts that are the same in every call."""
    rng = np.random.default_rng(1)
    asked = [tuple(rng.integers(3, 500, length).tolist()) for _ in range(prompts)]
    counts = np.full(prompts, rollouts)
    return sampler.engine.sample(asked, np.arange(prompts), counts, Draws(seed, 1, 0), temperature, limit)


def needs_vllm(bench: Bench, sampler: Sampler, name: str) -> bool:
    """Whether the engine is vLLM; otherwise the part is recorded as not run."""
    there = isinstance(sampler.engine, engines.VLLMEngine)
    if not there:
        bench.skip(name, "needs vLLM: make test-vllm installs it")
    return there


def check_runner(bench: Bench, sampler: Sampler) -> None:
    """Run check 5: vLLM runs with its second model runner, asynchronous scheduling and recorded graphs."""
    if not needs_vllm(bench, sampler, "vLLM's runner"):
        return
    length = len(sample(sampler, 2, 2, 20, 8).logp)
    bench.within("tokens of a first call", length, 4, 32)
    if not bench.gpu:
        return bench.skip("second model runner, asynchronous scheduling, recorded graphs")
    inner = sampler.engine.engine.llm_engine
    bench.holds("second model runner", inner.vllm_config.use_v2_model_runner)
    bench.holds("asynchronous scheduling", bool(inner.vllm_config.scheduler_config.async_scheduling))
    (graphs,) = sampler.engine.engine.collective_rpc(_graphs)
    bench.within("recorded graphs", graphs, least=1)


def _graphs(worker: Any) -> int:
    """Return the number of batch sizes that a worker has recorded."""
    manager = getattr(worker.model_runner, "cudagraph_manager", None)
    return len(manager.captured_token_counts()) if manager is not None else 0


def shift(policy: Policy) -> None:
    """Change the weights to others of the same size: half of the variance of each matrix is drawn anew."""
    with torch.no_grad():
        for parameter in policy.model.parameters():
            spread = float(parameter.std()) if parameter.ndim > 1 else 0.0
            parameter.add_(spread * torch.randn_like(parameter)).mul_(0.5**0.5 if spread else 1.0)


def gaps(sampler: Sampler, temperature: float = 1.0) -> np.ndarray:
    """Return the distances (T,) between the log-probabilities of sampler and trainer."""
    rollouts = sample(sampler, 4, 8, 40, 32, temperature)
    policy = Policy(sampler.policy.model, sampler.policy.compute, temperature or 1.0)
    return np.abs(policy.all_log_probs(rollouts.responses) - rollouts.logp)


def check_weights(bench: Bench, sampler: Sampler) -> None:
    """Run check 6: three cycles of new weights, rest and sync, each at temperatures 0, 0.7 and 1."""
    if not needs_vllm(bench, sampler, "weights after every sync"):
        return
    for cycle in range(3):
        shift(sampler.policy)
        sampler.engine.rest()
        sampler.engine.sync(sampler.policy)
        for temperature in (0.0, 0.7, 1.0):
            gap, where = gaps(sampler, temperature), f"cycle {cycle + 1}, temperature {temperature:g}"
            bench.within(f"mean distance, {where}", gap.mean(), most=0.02)
            bench.within(f"largest distance, {where}", gap.max(), most=0.5)
    shift(sampler.policy)
    with planted(engines, "load_weights", lambda model, policy: None):
        sampler.engine.rest()
        sampler.engine.sync(sampler.policy)
        seen = not gaps(sampler).mean() <= 0.06  # nan where sleep lost the weights
    bench.holds("control: weights that were not loaded are seen, mean above 0.06", bool(seen))
    sampler.engine.rest()
    sampler.engine.sync(sampler.policy)


class Cycle(NamedTuple):
    """Bytes in use while the engine is awake and asleep, and the seconds of a cycle."""

    awake: float
    asleep: float
    seconds: float


def judge_sleep(bench: Bench, cycles: list[Cycle], held: float) -> None:
    """Record whether sleep frees the engine's memory, and how long a cycle takes. held: bytes of weights and cache."""
    bench.within("share of weights and cache that sleep frees", median(c.awake - c.asleep for c in cycles) / held, 0.95)
    bench.within("growth over the cycles, bytes", cycles[-1].awake - cycles[0].awake, most=64e6)
    bench.within("seconds of a cycle, median", median(c.seconds for c in cycles), most=2.0)


def check_sleep(bench: Bench, sampler: Sampler) -> None:
    """Run check 7: the memory that sleep frees, its growth over 20 cycles, and the seconds of a cycle."""
    control = Bench(bench.device)
    judge_sleep(control, [Cycle(5e9, 4e9, 3.0), Cycle(6e9, 4e9, 3.0)], 4e9)
    bench.holds(
        "control: sleep that frees a third, grows and takes long is seen",
        {p.status for p in control.parts} == {"failed"},
    )
    if not bench.gpu:
        return bench.skip("memory and time of 20 cycles of rest and sync")
    cycles = []
    for _ in range(CYCLES):
        awake, began = bench.used(), time.perf_counter()
        sampler.engine.rest()
        asleep = bench.used()
        sampler.engine.sync(sampler.policy)
        torch.cuda.synchronize()
        cycles.append(Cycle(awake, asleep, time.perf_counter() - began))
    held = sampler.run.compute.cache_gb * 1e9 + 2.0 * bench.shape(QWEN).parameters
    judge_sleep(bench, cycles[1:], held)
    bench.constants["sleep"] = median(cycle.seconds for cycle in cycles)


def chi_square(sampler: Sampler, tokens: np.ndarray, prompt: tuple[int, ...], temperature: float) -> float:
    """Return the P-value of first tokens as draws from the policy's own distribution, in groups of similar
    probability."""
    ids = torch.tensor([prompt], device=sampler.run.compute.device)
    with torch.no_grad():
        logits = sampler.policy.model(input_ids=ids).logits[0, -1].double().cpu().numpy() / temperature
    chance = np.exp(logits - np.logaddexp.reduce(logits))
    order = np.argsort(-chance)
    group = np.empty(len(chance), dtype=np.int64)
    group[order] = np.minimum((np.cumsum(chance[order]) * BINS).astype(np.int64), BINS - 1)
    mass, seen = (np.bincount(group, weights, BINS) for weights in (chance, np.bincount(tokens, minlength=len(chance))))
    kept = mass > 0
    return float(stats.chisquare(seen[kept], mass[kept] / mass.sum() * seen.sum()).pvalue)


def same_tokens(one: Any, other: Any) -> float:
    """Return the share of tokens that two calls have in common, counting each response up to its first difference."""
    shares = []
    for row in range(len(one.responses.group)):
        first, second = one.responses.response(row), other.responses.response(row)
        both = min(len(first), len(second))
        same = np.logical_and.accumulate(first[:both] == second[:both]).sum()
        shares.append(same / max(len(first), len(second)))
    return float(np.mean(shares))


def check_draws(bench: Bench, sampler: Sampler) -> None:
    """Run check 8: equal calls, calls that are cut in parts, and 20,000 draws against the softmax."""
    ask = partial(sample, sampler, 8, 8, 40, 32)
    ask()  # the next calls find the prompts' blocks in the cache, so that they are equal
    whole = ask()
    bench.within("share of tokens that the same call gives again", same_tokens(whole, ask()), least=0.99)
    bench.within("control: share that another seed gives", same_tokens(whole, ask(seed=1)), most=0.3)
    draws, parts = Draws(0, 1, 0), []
    for index, prompt in enumerate(whole.responses.prompts):
        parts.append(sampler.engine.sample([prompt], np.array([index]), np.array([8]), draws, 1.0, 32))
    same = [
        same_tokens(part, whole._replace(responses=whole.responses.take(np.arange(8 * i, 8 * i + 8))))
        for i, part in enumerate(parts)
    ]
    least = ALIKE[sampler.run.compute.precision]
    bench.within("share of tokens that prompts alone give", float(np.mean(same)), least=least)
    first = sample(sampler, 1, 20_000 if bench.gpu else 4_000, 40, 1).responses
    tokens = first.tokens[token_indices(first.starts, np.arange(len(first.group)))]
    bench.within(
        f"chi-square of {len(tokens):,} draws, p", chi_square(sampler, tokens, first.prompts[0], 1.0), least=1e-4
    )
    wrong = chi_square(sampler, tokens, first.prompts[0], 2.0)
    bench.within("control: p of the same draws at temperature 2", wrong, most=1e-4)


def fit_steps(seconds: dict[int, float]) -> tuple[float, float]:
    """Return the seconds of a decoding step, and the further seconds for each row, neither below 0, from seconds by
    number of rows."""
    (few, first), (many, second) = sorted(seconds.items())
    row = max(0.0, (second - first) / (many - few))
    return max(0.0, first - row * few), row


def check_speed(bench: Bench, sampler: Sampler) -> None:
    """Run check 10: seconds of sampling and of an update compared with the plan; the constants of `--gpu measured`."""
    step, row = fit_steps({256: 0.007, 1024: 0.023})
    bench.within("control: a step's seconds from two made-up times", abs(step + 300 * row - 0.0079166), most=1e-6)
    design = Design(32, 8, rounds=1, eval_every=1, estimator=preset("minimalist"))
    sizes, response = ((256, 1024), RESPONSE) if bench.gpu else ((8, 32), 16)
    run = replace(sampler.run, design=design, model=replace(sampler.run.model, max_response_length=response))
    assumed, device = Assumed(PROMPT, response, 1, 1), plan_device(bench)
    steps: dict[int, float] = {}
    for rows in sizes:
        wide = replace(run, design=replace(design, batch_size=rows // 8))
        sample(sampler, rows // 8, 8, PROMPT, 8)
        began = time.perf_counter()
        sample(sampler, rows // 8, 8, PROMPT, response, seed=2)
        seconds = time.perf_counter() - began
        planned = estimate_duration(wide, bench.shape(QWEN), device, assumed).phases["sample"].seconds
        steps[rows] = seconds / response
        _beside_plan(bench, f"sampling {rows} rows", seconds / planned)
    sampler.engine.rest()
    responses = bench.responses(*((32, 8) if bench.gpu else (2, 4)), PROMPT, response)
    update = replace(
        run,
        design=replace(
            design, batch_size=len(responses.prompts), rollouts=len(responses.group) // len(responses.prompts)
        ),
    )
    old = np.full(len(responses.tokens), -1.0)
    rewards = np.arange(len(responses.group)) % 2.0
    batch = prepare(design.estimator, rewards, responses.group, responses.starts, old, old)
    times = []
    for _ in range(2):
        began = time.perf_counter()
        accumulate(sampler.policy, design.estimator, batch, responses, on_policy=True)
        if bench.gpu:
            torch.cuda.synchronize()
        times.append(time.perf_counter() - began)
    sampler.engine.sync(sampler.policy)
    phase = estimate_duration(update, bench.shape(QWEN), device, assumed).phases["update"].seconds
    _beside_plan(bench, "update", times[-1] / phase)
    step, row = fit_steps(steps)
    measured = {"step": step, "row": row, "utilisation": min(1.0, device.utilisation * phase / times[-1])}
    if bench.gpu:
        bench.constants |= measured
        bench.holds("constants for --gpu measured", "sleep" in bench.constants, str(bench.constants))
    else:
        bench.skip(
            "constants for --gpu measured", f"{NO_GPU}; here {', '.join(f'{k} {v:.2g}' for k, v in measured.items())}"
        )


def _beside_plan(bench: Bench, name: str, ratio: float) -> None:
    """Record the ratio of a measured time to the planned one."""
    if bench.gpu:
        bench.within(f"{name}: measured / planned", ratio, 0.25, 4.0)
    else:
        bench.skip(f"{name}: measured / planned", f"{NO_GPU}: the plan's constants are of GPUs", ratio)
