"""What TRL and verl are told is the design, and what they cannot do is said. A user's configuration is a start."""

import json
import math
import re
from dataclasses import replace

import pytest

from rftlab import KL, Design, Estimator, UserError
from rftlab.shared.cards import CARDS, PRESETS, SHIPPED
from rftlab.studies.forecast.advise import as_trl, as_verl
from rftlab.studies.forecast.advise.engines import EngineSettings, engine_flags, list_changes, read_start
from rftlab.studies.forecast.models import REAL, shape_named
from rftlab.studies.readers.designs import read_design
from rftlab.studies.readers.designs.values import Reader
from tests.support.machine.here import refused, shown

NAMES = sorted(name for name in SHIPPED if name in PRESETS)
TRL = {"grpo", "dr_grpo", "paper_text", "replay", "lite_ppo", "gspo", "luspo", "cispo", "sapo", "vespo",
       "two_sided", "deepseek_v32", "tis", "tis_sequence", "icepop", "mis", "grpo_verl", "grpo_trl",
       "grpo_open_instruct", "dr_grpo_oat", "top_entropy", "adaptive_entropy"}  # fmt: skip
NOT_VERL = {"remax", "ppo", "moving_average", "spo", "optimal_baseline", "gfpo", "dapo", "deepseek_v32", "icepop",
            "paper_code", "mis", "mis_geometric", "sampler_ratio", "grpo_open_instruct",
            "grpo_nano_aha", "ppo_verl", "scale_rl", "top_entropy", "adaptive_entropy", "rlep",
            "optimal_token_baseline"}  # fmt: skip


def wanted(name: str, **changed) -> EngineSettings:
    card = CARDS[name]
    design = Design(32, max(8, card.rollouts), estimator=PRESETS[name], sampling=card.sampling, rounds=100)
    return EngineSettings(replace(design, **changed), "owner/model", 8, 512, 1024, 2e-6, 1, 0.7)


def texts(flags: dict) -> dict:
    """As a file has them."""
    return {name: str(value) for name, value in flags.items()}


def in_trl(estimator: Estimator) -> Estimator:
    """An estimator with what TRL does in its own way: the differences that are said in words."""
    spec, aggregation, kl = estimator.advantage, estimator.aggregation, estimator.kl
    token_sums = aggregation.kind == "seq_mean_token_sum" and estimator.ratio.level == "token"
    return replace(
        estimator,
        advantage=replace(spec, eps=1e-4, ddof=1, singleton="raw"),
        kl=replace(kl, bounded=False) if kl.kind != "none" else kl,
        aggregation=replace(aggregation, length=1024.0 if token_sums else aggregation.length, eps=0.0, empty="skip"),
    )


@pytest.mark.parametrize("engine", ["trl", "verl"])
@pytest.mark.parametrize("name", NAMES)
def test_an_engine_is_told_the_design_or_it_is_refused(engine, name):
    asked = wanted(name, minibatches=2, epochs=2)
    if name not in TRL if engine == "trl" else name in NOT_VERL:
        with pytest.raises(UserError):
            engine_flags(engine, asked)
        return
    (flags, notes), estimator = engine_flags(engine, asked), asked.design.estimator
    known, doubts = read_design(texts(flags), engine, 8)
    assert (known.prompts, known.rollouts, known.updates_per_round) == (32, 8, 4) and not doubts
    assert (known.learning_rate, known.temperature, known.response_limit) == (2e-6, 0.7, 1024)
    reader = Reader(texts(flags))
    if engine == "verl":
        assert as_verl.read_verl_estimator(reader) == estimator and not reader.notes
        return
    assert as_trl.read_trl_estimator(reader) == in_trl(estimator) and not reader.notes
    spec, kl = estimator.advantage, estimator.kl
    assert flags["beta"] == known.kl_coefficient == (kl.coef if kl.kind != "none" else 0)
    said = any(note.startswith("TRL adds") and "deviation of rewards" in note for note in notes)
    assert said == (spec.scale != "none" and spec.eps != 1e-4)


def test_what_trls_defaults_would_change_is_set():
    flags, _ = engine_flags("trl", wanted("dr_grpo", minibatches=4))
    assert flags["lr_scheduler_type"] == "constant" and flags["warmup_steps"] == 0
    assert (flags["scale_rewards"], flags["loss_type"], flags["beta"]) == ("none", "dr_grpo", 0.0)
    assert flags["vllm_importance_sampling_correction"] == "False" == flags["mask_truncated_completions"]
    assert (flags["bf16"], flags["max_steps"]) == ("True", 400)
    batch = flags["per_device_train_batch_size"] * 8 * flags["gradient_accumulation_steps"]
    assert batch == 32 * 8 // 4 and flags["steps_per_generation"] == 4 * flags["gradient_accumulation_steps"]
    assert engine_flags("trl", wanted("paper_text"))[0]["use_bias_correction_kl"] == "False"
    flags, _ = engine_flags("trl", wanted("gspo"))
    assert flags["importance_sampling_level"] == "sequence"
    assert (flags["epsilon"], flags["epsilon_high"]) == (3e-4, 4e-4)
    asked = wanted("dr_grpo", minibatches=32)._replace(gpus=64)  # sizes that it cannot split
    with pytest.raises(UserError, match="no multiple of 32 mini-batches"):
        engine_flags("trl", asked)


def test_verl_gets_the_clip_that_it_reads():
    actor = "actor_rollout_ref.actor"
    flags, _ = engine_flags("verl", wanted("paper_text"))
    assert (flags[f"{actor}.clip_ratio_low"], flags[f"{actor}.clip_ratio_high"]) == (0.2, 0.2)
    assert flags[f"{actor}.clip_ratio_c"] > 1e6 and flags[f"{actor}.optim.lr_scheduler_type"] == "constant"
    assert engine_flags("verl", wanted("grpo_verl"))[0][f"{actor}.clip_ratio_c"] == 3.0


@pytest.mark.parametrize(
    ("config", "message"),
    [
        ({"loss_type": "new"}, "loss_type = new"),
        ({"epsilon": "$EPS"}, "epsilon is not known"),
        ({"scale_rewards": "other"}, "scale_rewards = other"),
        ({"loss_type": "cispo"}, "epsilon_high above 1"),
    ],
)
def test_an_estimator_that_is_unknown_is_refused(config, message):
    with pytest.raises(UserError, match=re.escape(message)):
        as_trl.read_trl_estimator(Reader({"num_generations": 8, **config}))


GRPO = {"model_name_or_path": "Qwen/Qwen2.5-0.5B-Instruct", "per_device_train_batch_size": 8, "num_generations": 8,
        "gradient_accumulation_steps": 4, "learning_rate": 2e-6, "loss_type": "dapo", "epsilon_high": 0.28,
        "max_completion_length": 1024, "lr_scheduler_type": "cosine", "temperature": 0.9}  # fmt: skip


def test_advice_starts_from_a_configuration_of_trl(tmp_path):
    (tmp_path / "grpo.json").write_text(json.dumps(GRPO))
    text = shown("advise", "--config", tmp_path / "grpo.json", "--designs", "16x16")
    assert "Qwen/Qwen2.5-0.5B-Instruct" in text and "B = 32, K = 8, 1 updates a round" in text
    lines = text.partition("what changes in your configuration")[2].splitlines()
    assert "  num_generations: 8 -> 16" in lines and "  lr_scheduler_type: cosine -> constant" in lines
    assert not any(line.startswith(("  learning_rate", "  epsilon", "  loss_type", "  temperature")) for line in lines)
    assert "the default of TRL 1.16 is" in text and all(len(line) <= 100 for line in text.splitlines())


def test_advice_starts_from_a_script_of_verl(tmp_path):
    path = tmp_path / "run.sh"
    path.write_text(
        "python -m verl.trainer.main_ppo algorithm.adv_estimator=grpo data.train_batch_size=64 "
        "actor_rollout_ref.rollout.n=4 actor_rollout_ref.actor.ppo_mini_batch_size=32 "
        "actor_rollout_ref.actor.use_kl_loss=True actor_rollout_ref.model.path=$MODEL data.gen_batch_size=64\n"
    )
    start = read_start(path, 8)
    assert (start.known.prompts, start.known.rollouts, start.epochs, start.minibatches) == (64, 4, 1, 2)
    assert start.estimator == replace(PRESETS["grpo_verl"], kl=KL("k3", 0.001))
    design = start.changed(Design(32, 8, rounds=100))
    assert (design.minibatches, design.estimator.kl.coef) == (2, 0.001)
    flags, _ = engine_flags("verl", EngineSettings(design, "MODEL", 8, 512, 512, 1e-6, 1))
    changes = {name: change for name, *change in list_changes(start, flags)}
    assert changes["data.train_batch_size"] == ["64", "32"] and changes["actor_rollout_ref.rollout.n"] == ["4", "8"]
    assert "actor_rollout_ref.actor.use_kl_loss" not in changes
    assert changes["data.gen_batch_size"] == ["64", "not stated"]  # it would be the batch in the design's place
    assert "run.sh names no model; allowed: --model" in refused("advise", "--config", path)


def test_a_configuration_that_advice_cannot_start_from_is_a_line(tmp_path):
    (tmp_path / "rl.toml").write_text("[orchestrator]\nbatch_size = 64\ngroup_size = 8\n")
    for name in ("rl.toml", "none.json"):
        assert name in refused("advise", "--config", tmp_path / name, "--model", "7B")


def test_a_number_takes_the_shape_of_a_real_model_which_is_named():
    model = shape_named("1.7B")
    assert "HuggingFaceTB/SmolLM2-1.7B" in model.note and model.shape == REAL["HuggingFaceTB/SmolLM2-1.7B"]
    for name, size in (("Qwen/Qwen2.5-7B", 7.62), ("meta-llama/Llama-3.1-8B", 8.03), ("Qwen/Qwen3-4B", 4.02)):
        assert math.isclose(REAL[name].parameters / 1e9, size, rel_tol=2e-3)
    assert shape_named("Qwen/Qwen2.5-7B-Instruct").shape == REAL["Qwen/Qwen2.5-7B"]


def test_a_name_in_the_hubs_local_cache_is_read(tmp_path, monkeypatch):
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path))
    with pytest.raises(UserError, match="local cache"):
        shape_named("owner/mine")
    folder = tmp_path / "models--owner--mine"
    for place in ("refs", "snapshots/abc123"):
        (folder / place).mkdir(parents=True)
    (folder / "refs" / "main").write_text("abc123")
    config = {"model_type": "llama", "hidden_size": 64, "num_attention_heads": 4, "intermediate_size": 128,
              "num_hidden_layers": 2, "vocab_size": 1000}  # fmt: skip
    (folder / "snapshots" / "abc123" / "config.json").write_text(json.dumps(config))
    model = shape_named("owner/mine")
    assert (model.shape.layers, model.shape.hidden, model.path) == (2, 64, "owner/mine")
    (folder / "refs" / "main").write_text("../../../x")
    with pytest.raises(UserError, match="local cache"):
        shape_named("owner/mine")
