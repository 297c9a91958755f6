"""Advice: shapes of models that are on no list, memory and time on several GPUs, ranks, first runs, engines' flags; and
the pages on planning and on checking runs."""

import json
import re
import shlex
from dataclasses import replace

import numpy as np
import pytest

from rftlab.llm.budget.devices import GPUS
from rftlab.llm.budget.footprint import memory_use
from rftlab.llm.budget.plan import Assumed, estimate_duration
from rftlab.llm.budget.shapes import KNOWN
from rftlab.shared.config.surrogate import Reinforce
from rftlab.shared.plumbing.errors import UserError
from rftlab.studies.forecast.advise import evidence as gathering
from rftlab.studies.forecast.advise.engines import EngineSettings, engine_flags
from rftlab.studies.forecast.advise.evidence import AdviceEvidence, DesignScore, design_key, mean_score
from rftlab.studies.forecast.advise.fleet import SHARDED, least_gpus, link_speed, parse_fleet, planned_on, sharded
from rftlab.studies.forecast.advise.options import advised_run, designs_named, first_runs, make_option, rank_options
from rftlab.studies.forecast.models import shape_named, sized_shape
from rftlab.studies.forecast.pilot.pilot import CELLS
from rftlab.studies.forecast.signal.signal import match_beta, zero_variance_share
from rftlab.studies.readers.run import ImportedRun, KnownDesign
from rftlab.studies.readers.store import write_collection
from tests.support.docs.pages import run_page
from tests.support.estimators.vectors import ROOT
from tests.support.logs.planted import piece_of
from tests.support.machine.here import refused, rftlab, shown

ASSUMED = Assumed(120, 200, 500, 500)
SEVEN = sized_shape(7e9)
QWEN = "Qwen/Qwen2.5-0.5B-Instruct"
CONFIG = {"model_type": "qwen2", "hidden_size": 896, "num_attention_heads": 14, "num_key_value_heads": 2,
          "intermediate_size": 4864, "num_hidden_layers": 24, "vocab_size": 151936,
          "tie_word_embeddings": True}  # fmt: skip


def run(label: str = "32x8"):
    (design,) = designs_named((label,), 500).values()
    return advised_run("m", design, ASSUMED)


def plan(gpus: str, label: str = "32x8", shape=SEVEN):
    return planned_on(run(label), shape, parse_fleet(gpus), ASSUMED)


def test_a_folder_a_file_and_a_known_name_have_one_shape_and_an_unknown_kind_is_said(tmp_path):
    (file := tmp_path / "config.json").write_text(json.dumps(CONFIG))
    result = [shape_named(str(name)) for name in (tmp_path, file, QWEN)]
    assert {one.shape for one in result} == {KNOWN[QWEN]} and {one.note for one in result} == {""}
    file.write_text(json.dumps(CONFIG | {"model_type": "newkind"}))
    model = shape_named(str(tmp_path))  # it counts as a Llama
    assert "newkind" in model.note and model.shape == KNOWN[QWEN]._replace(biases=0)


@pytest.mark.parametrize(
    ("text", "parameters"), [("1e8", 1e8), ("0.5B", 5e8), ("7e9", 7e9), ("7b", 7e9), ("70B", 7e10), ("405B", 4.05e11)]
)
def test_a_number_has_a_shape_of_that_size(text, parameters):
    model = shape_named(text)
    assert model.shape.parameters == pytest.approx(parameters, rel=0.25) and "assumed" in model.note
    assert 1 <= model.shape.ffn / model.shape.hidden <= 6


@pytest.mark.parametrize(
    "config",
    [
        *("", "[]", "{}", "{" * 100_000),
        json.dumps(CONFIG | {"num_experts": 128}),
        json.dumps(CONFIG | {"hidden_size": 10**12}),
        json.dumps(CONFIG | {"hidden_size": "896"}),
        json.dumps(CONFIG | {"num_hidden_layers": -1}),
        json.dumps({name: value for name, value in CONFIG.items() if name != "vocab_size"}),
    ],
)
def test_a_wrong_config_is_one_line(config, tmp_path):
    (tmp_path / "config.json").write_text(config)
    assert "allowed" in refused("advise", "--model", tmp_path)


def test_on_one_gpu_memory_and_time_are_those_of_the_dry_run():
    planned = plan("1xH200", shape=KNOWN[QWEN])
    assert planned.memory == memory_use(planned.run, KNOWN[QWEN], ASSUMED[:2]) and planned.fits
    alone = estimate_duration(planned.run, KNOWN[QWEN], GPUS["H200"], ASSUMED)
    assert planned.duration.round_seconds == pytest.approx(alone.round_seconds)
    assert planned.duration.seconds == pytest.approx(alone.seconds) and "exchange" not in planned.duration.phases


@pytest.mark.parametrize("count", [2, 8, 64])
def test_what_is_sharded_is_divided_and_the_rest_is_not(count):
    whole = memory_use(run(), SEVEN, ASSUMED[:2])
    memory = sharded(whole, run(), SEVEN, count, 1)
    for phase, parts in memory.phases.items():
        for part, size in parts.items():
            if part in SHARDED:
                assert size == pytest.approx(whole.phases[phase][part] / count)
            elif part != "bf16 copies":
                assert size == whole.phases[phase][part]
    states = sum(memory.phases["update"][part] for part in ("weights", "gradients", "optimiser"))
    assert states * count == pytest.approx(16 * SEVEN.parameters)  # ZeRO: fp32 weight, gradient, two moments
    assert memory.phases["update"]["bf16 copies"] == 2 * (2 * SEVEN.block_products + SEVEN.head)


def test_more_gpus_need_less_each_and_are_faster_but_dearer():
    plans = [plan(f"{count}xH100") for count in (1, 2, 4, 8)]
    assert [one.memory.peak for one in plans] == sorted((one.memory.peak for one in plans), reverse=True)
    assert (plans[0].fits, plans[-1].fits) == (False, True)
    fitting = [(one.duration.seconds, one.gpu_hours) for one in plans if one.fits]
    assert fitting == sorted(fitting, key=lambda pair: -pair[0])
    assert plans[-1].gpu_hours == max(hours for _, hours in fitting)
    assert link_speed(parse_fleet("16xH100")) < link_speed(parse_fleet("8xH100")), "machines talk more slowly"


def test_the_parts_of_a_round_add_up_to_the_round():
    """Tokens of all GPUs are those of one, but for prompts that are read on several."""
    one, eight = plan("1xH100"), plan("8xH100")
    for phase in ("sample", "update"):
        assert eight.duration.phases[phase].tokens == one.duration.phases[phase].tokens
    few, many = (plan(gpus, "2x128").duration.phases["sample"].tokens for gpus in ("1xH100", "8xH100"))
    assert many == pytest.approx(few, rel=0.05)


def test_a_large_model_spreads_the_sampler_over_gpus():
    shape = shape_named("70B").shape
    planned = plan("64xH100", shape=shape)
    assert planned.tensor_parallel > 1 == plan("8xH100").tensor_parallel and planned.fits
    weights = planned.memory.phases["sample"]["vLLM weights"]
    assert weights == pytest.approx(2 * shape.parameters / planned.tensor_parallel)


def test_the_cache_takes_what_is_needed_or_left_and_the_least_gpus_fit():
    rich, poor = plan("8xH200"), plan("8xA100-40", "32x64")
    token = 4 * SEVEN.layers * SEVEN.keys
    assert rich.cache_gb * 1e9 == pytest.approx(32 * 8 / 8 * 320 * token)
    assert poor.memory.peak <= 0.95 * 40e9 * 1.0001
    fleet, shape = parse_fleet("1xA100-40"), shape_named("8B").shape
    least = least_gpus(run(), shape, fleet, ASSUMED)
    assert planned_on(run(), shape, replace(fleet, count=least), ASSUMED).fits
    assert not planned_on(run(), shape, replace(fleet, count=least // 2), ASSUMED).fits


NOTHING = AdviceEvidence(None, None, {}, ())


def options_of(labels, evidence=NOTHING, gpus="8xH100"):
    designs = designs_named(tuple(labels), 500)
    return [make_option(label, design, plan(gpus, label), evidence) for label, design in designs.items()]


def scored(values):
    """Evidence of one run for each of these designs."""
    keys = {label: design_key(design) for label, design in designs_named(tuple(values), 500).items()}
    scores = {keys[label]: DesignScore(value, np.nan, np.nan, 1) for label, value in values.items()}
    return AdviceEvidence(None, None, scores, ())


LABELS = ("16x16", "64x4", "32x8", "128x8", "256x2", "4x64")


def test_the_order_is_that_of_cost_below_what_was_measured_and_above_what_does_not_fit():
    hours = [option.plan.gpu_hours for option in rank_options(options_of(LABELS))]
    assert hours == sorted(hours)
    options = options_of(("32x8",)) + options_of(("16x16",), gpus="1xA100-40")
    assert [option.plan.fits for option in rank_options(options[::-1])] == [True, False]
    ranked = rank_options(options_of(LABELS, scored({"128x8": 0.5, "16x16": 0.4})))
    assert [option.label for option in ranked[:2]] == ["128x8", "16x16"]


def test_groups_with_signal_are_those_of_the_pass_rates():
    rates = match_beta(0.3, 0.2)
    (option,) = options_of(("32x8",), AdviceEvidence(rates, None, {}, ()))
    assert option.groups == pytest.approx(32 * (1 - zero_variance_share(rates, 8)))
    assert option.rate == pytest.approx(option.groups * 500 / option.plan.gpu_hours)
    window = options_of(("32x4w8-paper_text",), AdviceEvidence(rates, None, {}, ()))[0]
    assert window.groups is None  # its baseline is not the group's alone


def test_the_first_runs_are_a_middle_a_contrast_and_a_repeat_which_comes_first_after_some_runs():
    chosen = first_runs(options_of(LABELS), 200)
    first, second, third = (option for option, _ in chosen)
    assert first is third and second.label != first.label
    assert second.plan.gpu_hours <= 1.5 * first.plan.gpu_hours
    assert "seed" in chosen[2][1]
    labels = [option.label for option, _ in first_runs(options_of(LABELS, scored({"64x4": 0.4})), 200)]
    assert labels[0] == "64x4" and "64x4" not in labels[1:] and len(set(labels)) == 3


@pytest.mark.parametrize("budget", [1, 10, 20, 30, 200])
def test_the_first_runs_are_within_the_budget(budget):
    chosen = first_runs(options_of(LABELS), budget)
    assert sum(option.plan.gpu_hours for option, _ in chosen) <= budget
    assert (len(chosen) == 0) == (budget == 1) and (len(chosen) == 3 or budget < 200)


def test_a_score_of_one_run_has_no_interval():
    assert np.isnan(mean_score(np.array([0.4])).low)
    score = mean_score(np.array([0.41, 0.43, 0.40]))
    assert score.low < 0.41333 < score.high and score.runs == 3


def test_imported_runs_are_evidence_for_their_design(tmp_path):
    runs = []
    for name, value, prompts in (("a", 0.3, 32), ("b", 0.34, 32), ("c", 0.5, 64), ("d", 0.9, None)):
        curve = piece_of("test", "pass_at_1", (100,), (value,), 1.0)
        design = KnownDesign(prompts=prompts, rollouts=8)
        runs.append(ImportedRun(name, "table", "", (("x", "0"),), design, (curve,)))
    write_collection(tmp_path, "mine", runs)
    evidence = gathering.gather_evidence(tmp_path, None, "mine", None)
    assert evidence.scores[32, 8, 0, 0].value == pytest.approx(0.32) and evidence.scores[32, 8, 0, 0].runs == 2
    assert set(evidence.scores) == {(32, 8, 0, 0), (64, 8, 0, 0)} and "3 of 4 runs" in evidence.origins[0]
    text = shown("advise", "--model", "7e9", "--results", tmp_path, "--imported", "mine")
    assert "0.500 (1 run)" in text and "of all others unknown" in text
    assert text.index("64x8-paper_text") < text.index("32x8-paper_text")


def wanted(label: str, gpus: int = 8) -> EngineSettings:
    (design,) = designs_named((label,), 100).values()
    return EngineSettings(design, "model", gpus, 512, 1024, 1e-6, 1)


def prime(batch: int, rollouts: int) -> dict:
    return {"orchestrator.batch_size": batch, "orchestrator.group_size": rollouts, "trainer.optim.lr": 1e-6}


SLIME = {"--rollout-batch-size": 32, "--n-samples-per-prompt": 8, "--global-batch-size": 256, "--actor-num-nodes": 2,
         "--actor-num-gpus-per-node": 8}  # fmt: skip


@pytest.mark.parametrize(
    ("engine", "label", "gpus", "flags"),
    [
        ("prime-rl", "32x8", 8, prime(256, 8)),
        ("prime-rl", "1x256", 8, prime(256, 256)),
        ("prime-rl", "24x5", 8, prime(120, 5)),
        ("slime", "32x8", 16, SLIME),
        ("verl", "256x1", 8, {"algorithm.adv_estimator": "grpo"}),  # the raw reward of a group of one
        ("trl", "256x1", 8, None),
        ("prime-rl", "256x1", 8, None),
        ("slime", "256x1", 8, None),
        ("verl", "256x1w8-paper_text", 8, None),
        ("verl", "32x1+7-paper_text", 8, None),
        ("verl", "3x5", 8, None),
        ("trl", "3x5", 8, None),
        ("prime-rl", "32x8", 1, None),
    ],
)
def test_an_engine_is_told_sizes_or_why_it_cannot(engine, label, gpus, flags):
    """flags: None where the engine refuses."""
    if flags is None:
        with pytest.raises(UserError):
            engine_flags(engine, wanted(label, gpus))
    else:
        assert flags.items() <= engine_flags(engine, wanted(label, gpus))[0].items()


@pytest.mark.parametrize("engine", ["verl", "trl"])
@pytest.mark.parametrize("label", ["32x8", "256x2", "24x5", "1x256"])
def test_what_is_printed_for_an_engine_is_read_back_as_the_design(engine, label, tmp_path):
    """From the lines of one command to the file of another."""
    text = shown("advise", "--model", "7e9", "--designs", label, "--engine", engine)
    assert all(len(line) <= 100 for line in text.splitlines())
    (tmp_path / "run.sh").write_text(text.partition(f"in {engine}'s words\n")[2].partition("  note:")[0])
    text = shown("import", "--config", tmp_path / "run.sh", "--processes", 8)
    rows = dict(re.findall(r"^ (\S.*?)  +(\S+) *$", text, re.MULTILINE))
    known = (rows["prompts a round (B)"], rows["rollouts a prompt (K)"], rows["updates a round"])
    assert known == (*label.split("x"), "1") and rows["learning rate"] == "1e-06" and f"({engine})" in text


def test_an_engine_is_told_of_no_other_surrogate_than_clip():
    asked = wanted("32x8")
    estimator = replace(asked.design.estimator, surrogate=Reinforce())
    with pytest.raises(UserError, match="surrogate = Reinforce; allowed: Clip"):
        engine_flags("verl", asked._replace(design=replace(asked.design, estimator=estimator)))


@pytest.mark.parametrize(
    ("flags", "words", "absent"),
    [
        (
            "",
            ("Nothing was measured on this model: this ranks costs", *CELLS, "first runs", "evidence: none",
             "actor_rollout_ref.rollout.n="),
            ("groups with",),
        ),
        ("--pair tiny-mix97 --designs 32x8", ("stands in for 7e9", "groups with", "nobody measured"), ()),
        ("--budget 1 --designs 32x8", ("no run that fits can be paid", "rounds of it"), ()),
        *((f"--designs 32x8 --budget {n}", ("20 GPU-hours",), ()) for n in ("20h", "20 GPU-hours", "'20 GPU-hours'")),
    ],
)  # fmt: skip
def test_without_evidence_it_ranks_costs_and_says_what_stands_in(flags, words, absent):
    text = shown("advise", "--model", "7e9", *shlex.split(flags))
    assert [one for one in words if one not in text] == [one for one in absent if one in text] == []


def test_a_model_that_does_not_fit_is_told_how_many_gpus_it_needs():
    status, text = rftlab("advise", "--model", "70B", "--gpus", "2xH100", "--designs", "32x8")
    assert status == 1 and "no design fits" in text and "xH100" in text.split("no design fits")[1]


def test_a_task_of_ones_own_has_its_lengths():
    ask = ("advise", "--model", "7e9", "--task", "mine", "--designs", "32x8")
    short, long = (rftlab(*ask, "--prompt-tokens", 100, "--response-tokens", n)[1] for n in (100, 3000))
    assert "responses of 3000 tokens" in long and short != long


@pytest.mark.parametrize(("page", "blocks"), [("plan.md", 4), ("lab/law.md", 1), ("diagnose.md", 6), ("check.md", 2)])
def test_a_page_prints_what_it_says(page, blocks, tmp_path):
    assert run_page((ROOT / "docs" / page).read_text(), tmp_path) == blocks
