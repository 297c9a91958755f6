"""Plans: memory, time, changes that fit, the command line."""

import contextlib
import itertools
import subprocess
import sys
from dataclasses import replace
from types import SimpleNamespace

import pytest
import torch

from rftlab import Design, Estimator, UserError, preset
from rftlab.llm.budget.devices import GPUS, named_device
from rftlab.llm.budget.footprint import LIBRARIES, cache_bytes, memory_use
from rftlab.llm.budget.plan import (
    FILL,
    Assumed,
    changes,
    cost_plan,
    estimate_duration,
    fastest_settings,
    filled,
    knobs,
    smallest_change,
)
from rftlab.llm.budget.shapes import read_shape
from rftlab.llm.config import Compute, LoRA, model_config
from rftlab.studies.cli.common import PlanFlags
from rftlab.studies.cli.execute.plan import planned
from rftlab.studies.data.paper.experiments import EXPERIMENTS
from rftlab.studies.data.paper.pairs import pairs_at, start_at
from rftlab.studies.data.runs.points import study_points
from tests.support.machine.here import rftlab

ASSUMED = Assumed(120, 200, 7473, 1319)
WIDE = Compute("cuda", precision="bf16", engine="vllm", micro_tokens=16384)
"""Passes of as many tokens as a large GPU takes, so that there is something to save."""
QWEN = replace(start_at("qwen-gsm8k", "llm"), design=Design(eval_every=100, estimator=preset("grpo")), compute=WIDE)


DRY = "train --pair qwen-gsm8k --dry-run"


def with_compute(run, **compute):
    return replace(run, compute=replace(run.compute, **compute))


def of_size(run, batch_size, rollouts, **more):
    return replace(run, design=replace(run.design, batch_size=batch_size, rollouts=rollouts), **more)


def test_parts_exist_when_they_do():
    shape = read_shape(QWEN.model)
    memory, weights = memory_use(QWEN, shape), shape.parameters

    def phases(**compute):
        return memory_use(with_compute(QWEN, **compute), shape).phases

    assert list(memory.phases) == ["sample", "log_probs", "update"]
    assert memory.peak == max(map(memory.total, memory.phases))
    for parts in memory.phases.values():
        assert [parts[name] / weights for name in ("weights", "reference", "optimiser")] == [4, 4, 8]
    assert [phase for phase in memory.phases if "gradients" in memory.phases[phase]] == ["update"]
    asleep = [phase for phase in memory.phases if "cache" not in memory.phases[phase]]
    assert asleep == ["update"], "vLLM sleeps during the update alone"
    awake, asleep = memory.phases["sample"]["libraries"], memory.phases["update"]["libraries"]
    assert memory.phases["log_probs"]["libraries"] == awake > asleep > LIBRARIES["cuda"]
    assert memory.phases["sample"]["cache"] == 4e9 and memory.phases["sample"]["vLLM weights"] == 2 * weights
    assert phases(precision="fp32")["sample"]["vLLM weights"] == 4 * weights
    plain = memory_use(replace(QWEN, design=replace(QWEN.design, estimator=Estimator())), shape).phases
    assert list(plain) == ["sample", "update"] and not any("reference" in parts for parts in plain.values())
    hf, on_cpu = phases(engine="hf")["sample"], phases(device="cpu")
    assert "vLLM weights" not in hf and hf["cache"] == cache_bytes(shape, 256 * 1536)
    assert all("vLLM weights" in parts for parts in on_cpu.values())
    assert [phase for phase, parts in on_cpu.items() if "reference" in parts] == ["log_probs"]


def test_short_responses_share_longer_sequences_with_larger_masks():
    run, shape = replace(QWEN, design=replace(QWEN.design, rollouts=64)), read_shape(QWEN.model)
    limits = memory_use(run, shape).phases["update"]["activations"]
    longer = memory_use(run, shape, (120, 50)).phases["update"]["activations"]
    assert longer > limits == memory_use(run, shape, (512, 1024)).phases["update"]["activations"]


@pytest.mark.parametrize("pair", pairs_at("sim"))
def test_every_cell_of_the_pairs_of_the_paper_fits_the_smallest_gpu(pair):
    start = start_at(pair, "llm")
    cells = [point.run for point in study_points(list(EXPERIMENTS.values()), "llm", [pair], 1, None)]
    for run in (*cells, of_size(replace(start, design=replace(start.design, estimator=preset("grpo"))), 32, 8)):
        plan = planned(run, PlanFlags(dry_run=True, gpu="A100-40"))
        assert plan.fits, (run.design, plan.memory.peak_phase, plan.memory.peak)


def test_the_smallest_change_fits_and_one_step_less_does_not():
    kinds = set()
    for pair, gigabytes in itertools.product(("qwen-gsm8k", "olmo-math"), (14, 16, 18, 20, 25, 30, 35)):
        run = of_size(start_at(pair, "llm"), 32, 8, compute=WIDE)
        plan = cost_plan(run, GPUS["H100"]._replace(memory=gigabytes * 1e9), ASSUMED)
        change, shape = smallest_change(plan), plan.shape
        kinds.add(None if change is None else len(change))
        tried = list(changes(run, shape))
        assert not plan.fits
        for other in tried[: None if change is None else tried.index(change)]:
            assert plan.memory_with(**other).peak > plan.room, (pair, gigabytes)
        if change is not None:
            assert cost_plan(with_compute(run, **change), plan.device, ASSUMED).fits, (pair, gigabytes)
        for name, value in (change or {}).items():
            values = [getattr(run.compute, name), *knobs(run, shape)[name]]
            assert plan.memory_with(**change | {name: values[values.index(value) - 1]}).peak > plan.room
    assert kinds >= {None, 1, 2}


def test_adapters_alone_are_trained():
    whole, plan = (cost_plan(replace(QWEN, lora=lora), GPUS["A100-80"], ASSUMED) for lora in (LoRA(), LoRA(8)))
    frozen, few = read_shape(QWEN.model).parameters, plan.shape.adapters
    assert 0 < few < frozen / 50 and plan.shape.trained == few and whole.shape.trained == frozen
    update = plan.memory.phases["update"]
    assert (update["weights"], update["gradients"], update["optimiser"]) == (4 * (frozen + few), 4 * few, 8 * few)
    assert list(plan.memory.phases) == list(whole.memory.phases)
    assert not any("reference" in parts for parts in plan.memory.phases.values())
    assert plan.memory.peak < 0.75 * whole.memory.peak
    assert plan.duration.phases["update"].seconds < whole.duration.phases["update"].seconds
    some = cost_plan(replace(QWEN, lora=LoRA(8, targets=("q_proj", "v_proj"))), GPUS["A100-80"], ASSUMED)
    assert some.shape.adapters < few and some.memory.total("update") < plan.memory.total("update")
    with pytest.raises(UserError, match=r"lora.targets = 'fc' is unknown; allowed: down_proj, gate_proj, k_proj"):
        cost_plan(replace(QWEN, lora=LoRA(8, targets=("fc",))), GPUS["A100-80"], ASSUMED)


@pytest.mark.parametrize("gpu", ["A100-40", "H100"])
@pytest.mark.parametrize("pair", ["qwen-gsm8k", "olmo-math"])
def test_the_fastest_settings_fit_and_none_that_is_tried_alone_is_faster(pair, gpu):
    run = start_at(pair, "llm")
    run = replace(run, design=replace(run.design, batch_size=32, rollouts=8, eval_every=100))
    plan = cost_plan(run, GPUS[gpu], ASSUMED)
    change = fastest_settings(plan)
    best = cost_plan(with_compute(run, **change), plan.device, ASSUMED)
    assert best.fits and best.duration.seconds < 0.99 * plan.duration.seconds
    for name, values in FILL.items():
        for value in values:
            other = cost_plan(with_compute(best.run, **{name: value}), plan.device, ASSUMED)
            assert not other.fits or other.duration.seconds > 0.998 * best.duration.seconds
    assert fastest_settings(best) == {}


@pytest.mark.parametrize("design", [(32, 8), (256, 8), (2048, 1)])
@pytest.mark.parametrize("pair", ["qwen-gsm8k", "llama-gsm8k", "olmo-math"])
def test_a_run_that_fills_a_gpu_fits_and_keeps_what_is_fixed(pair, design):
    run = of_size(start_at(pair, "llm"), *design)
    for gpu in GPUS.values():
        plan = cost_plan(run, gpu, ASSUMED)
        full = cost_plan(filled(plan), gpu, ASSUMED)
        assert full.fits and (full.duration.seconds <= plan.duration.seconds or not plan.fits)
        assert gpu.memory < 80e9 or full.duration.seconds < 0.95 * plan.duration.seconds
        fixed = cost_plan(filled(plan, {"sleep", "gradient_checkpointing"}), gpu, ASSUMED)
        same = ("sleep", "gradient_checkpointing", "engine", "precision")
        assert fixed.fits and all(getattr(fixed.run.compute, name) == getattr(run.compute, name) for name in same)
        assert model_config(replace(full.run, compute=run.compute)) == model_config(run)


def test_a_run_that_cannot_fill_a_gpu_is_one_line():
    small = GPUS["H100"]._replace(memory=18e9)
    plan = cost_plan(replace(QWEN, compute=WIDE), small, ASSUMED)
    assert not plan.fits and cost_plan(filled(plan), small, ASSUMED).fits
    with pytest.raises(UserError, match=r"fill: the run needs .* GB, 17.1 may be used, and no setting"):
        filled(plan, FILL.keys() | {"logit_rows"})


def test_an_engine_that_stays_awake_keeps_its_memory_and_saves_its_seconds():
    asleep, awake = (cost_plan(with_compute(QWEN, sleep=sleep), GPUS["H100"], ASSUMED) for sleep in (True, False))
    assert awake.memory.phases["update"]["cache"] == 4e9
    assert asleep.duration.round_seconds - awake.duration.round_seconds == pytest.approx(2)
    assert "sleep" not in model_config(asleep.run)["compute"] and not model_config(awake.run)["compute"]["sleep"]


def test_costs_add_up_and_grow_with_the_work():
    shape, gpu, run = read_shape(QWEN.model), GPUS["A100-80"], of_size(QWEN, 32, 8)

    def cost(run, gpu=gpu):
        return estimate_duration(run, shape, gpu, ASSUMED)

    found, slow = cost(run), cost(with_compute(run, gradient_checkpointing=True))
    assert found.phases["sample"].tokens == 32 * 120 + 256 * 200 and found.rollouts == 256
    assert found.evaluation.tokens == (500 + 1319) * 320 and found.evaluations == 21
    rounds = 2000 * sum(phase.seconds for phase in found.phases.values())
    assert found.seconds == pytest.approx(rounds + 21 * found.evaluation.seconds)
    assert cost(run, GPUS["H100"]).seconds < found.seconds < cost(of_size(QWEN, 64, 8)).seconds
    assert slow.phases["update"].seconds == pytest.approx(4 / 3 * found.phases["update"].seconds, rel=0.05)
    assert cost(with_compute(run, engine="hf")).phases["sample"].seconds > found.phases["sample"].seconds
    products = 6 * shape.parameters * found.phases["update"].tokens / (0.3 * gpu.bf16)
    assert products * 0.8 < found.phases["update"].seconds < products * 1.3


def test_vllm_samples_no_more_side_by_side_than_its_cache_holds():
    gpu, shape = GPUS["A100-40"], read_shape(QWEN.model)

    def steps(**compute):
        return estimate_duration(with_compute(QWEN, **compute), shape, gpu, ASSUMED).evaluation.seconds

    assert steps(cache_gb=4.0) == steps(cache_gb=40.0) < steps(cache_gb=0.1) < steps(cache_gb=0.01)
    assert steps(cache_gb=0.01, engine="hf") == steps(cache_gb=40.0, engine="hf")


def test_the_gpu_at_hand_is_taken(monkeypatch):
    properties = SimpleNamespace(name="NVIDIA H100 80GB HBM3", total_memory=85e9)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda device: properties)
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda device: (70e9, 85e9))
    found = named_device("cuda", None)
    assert (found.memory, found.bf16, found.name) == (70e9, 989e12, properties.name) and "70.0 of 85.0 GB" in found.note
    monkeypatch.setattr(torch.cuda, "device_memory_used", lambda device: 5e9)
    assert named_device("cuda", None).memory == 80e9, "the driver's library is asked first, which holds no memory"
    properties.name += " MIG 3g.40gb"
    assert named_device("cuda", None).memory == 70e9, "of a part the library tells of the whole"
    for total, like in ((85.1e9, "A100-80"), (42.4e9, "A100-40")):
        properties.name, properties.total_memory = f"NVIDIA A100-SXM4-{like[-2:]}GB", total
        assert named_device("cuda", None).bandwidth == GPUS[like].bandwidth
    properties.name = "NVIDIA L4"
    assert "not known" in named_device("cuda", None).note
    assert named_device("cuda", "H200") == GPUS["H200"] and named_device("cpu", None, 1).name == "cpu, 1 thread"
    with pytest.raises(UserError, match="gpu = 'T4' is unknown; allowed: A100-40"):
        named_device("cuda", "T4")


@pytest.fixture(autouse=True)
def no_gpu(monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)


def test_a_plan_knows_the_disk_that_checkpoints_take():
    plan = cost_plan(QWEN, GPUS["H100"], ASSUMED)
    assert plan.disk == 36 * read_shape(QWEN.model).parameters
    assert cost_plan(replace(QWEN, lora=LoRA(8)), GPUS["H100"], ASSUMED).disk < plan.disk / 50
    assert "Checkpoints take up to 17.8 GB of disk" in rftlab(*f"{DRY} --gpu H100".split())[1]


def test_a_run_that_fits_prints_no_change():
    status, printed = rftlab(*f"{DRY} --gpu H100 --compute.no-gradient-checkpointing".split())
    assert status == 0 and "fits: peak" in printed and "change" not in printed
    shown = ("494.0 million", "optimiser", "cache", "2000 rounds, 21 evaluations", "Assumed: prompts of 120")
    assert all(word in printed for word in (*shown, "gradient_checkpointing=True"))


def test_a_run_that_does_not_fit_prints_a_change_that_fits():
    line = f"{DRY} --gpu A100-40 --rollouts 8 --compute.no-gradient-checkpointing".split()
    status, printed = rftlab(*line, "--compute.micro-tokens", 32768)
    assert status == 1 and "fits as it is on: " in printed
    flags = printed.split("smallest change that makes it fit: ")[1].split(" (peak")[0].split()
    more = () if "--compute.micro-tokens" in flags else ("--compute.micro-tokens", 32768)
    assert rftlab(*line, *more, *flags)[0] == 0


def test_the_dry_run_of_a_study(monkeypatch, tmp_path):
    study = "reproduce --level llm --pair qwen-gsm8k --seeds 2 --dry-run --gpu H200 --results"
    line = (*study.split(), tmp_path / "none")
    status, printed = rftlab(*line)
    assert status == 0 and printed.count("2 of 2") == 25 and "50 of 50 runs to do" in printed
    monkeypatch.setattr(
        "rftlab.studies.data.runs.store.read", lambda root, point: "there" if point.run.seed == 0 else None
    )
    half = rftlab(*line)[1]
    assert half.count("1 of 2") == 25 and "25 of 50 runs to do" in half

    def hours(text):
        return float(text.split("whole study")[1].split(": ")[1].split()[0])

    assert hours(half) == pytest.approx(hours(printed) / 2, abs=0.1)
    assert not (tmp_path / "none").exists()


@pytest.mark.parametrize("pair", pairs_at("llm"))
def test_every_pair_has_a_plan(pair):
    assert "peak" in rftlab("train", "--pair", pair, "--dry-run")[1]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ("train --pair gpt", "pair = 'gpt' is unknown; allowed: qwen-gsm8k"),
        ("train --pair smollm2-words --dry-run --model.source .", "allowed: tiny, smollm2-135m, Qwen/Qwen2.5-0.5B"),
        ("train --gpu H100", "gpu = H100; allowed: with --dry-run"),
        ("train --dry-run --gpu H100", "compute.device = cpu; allowed: a run on cuda"),
        ("reproduce --dry-run", "allowed: --level llm"),
        ("train --dry-run --prompt-tokens 0", "prompt_tokens = 0; allowed: 1 or more"),
    ],
)
def test_bad_input_is_a_line_and_status_2(arguments, message):
    with contextlib.suppress(SystemExit):
        status, printed = rftlab(*arguments.split())
        assert status == 2 and message in printed and printed.count("\n") == 1


WITHOUT = """
import sys
class Missing:
    def find_spec(name, *more):
        if name in ("torch", "transformers"):
            raise ModuleNotFoundError(name)
sys.meta_path.insert(0, Missing)
from rftlab.studies.cli.main import main
main()
"""


def test_a_dry_run_needs_no_torch():
    command = [sys.executable, "-c", WITHOUT, "train", "--pair", "olmo-math", "--dry-run"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=1200)
    assert done.returncode in (0, 1) and "1484.9 million" in done.stdout, done.stderr
