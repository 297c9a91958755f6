"""What are my B and K? Configurations of trainers in our terms."""

import pickle

import pytest

from rftlab.shared.errors import UserError
from rftlab.studies.logs.config_file import read_config
from rftlab.studies.logs.designs import design_of, tool_of_config

TRL = {"per_device_train_batch_size": 4, "gradient_accumulation_steps": 8, "num_generations": 8}


@pytest.mark.parametrize(
    ("more", "processes", "prompts", "updates"),
    [
        ({}, 2, 8, 1),  # 4 x 2 x 8 responses of 8 a prompt
        ({}, None, None, 1),
        ({"num_iterations": 2}, 2, 8, 2),
        ({"steps_per_generation": 16}, 2, 16, 2),
        ({"generation_batch_size": 64}, 2, 8, 1),
        ({"generation_batch_size": 64}, None, 8, None),
        (
            {"generation_batch_size": 128, "steps_per_generation": 16},
            None,
            16,
            2,
        ),  # as after __post_init__: two processes
        ({"num_generations": 7}, 2, None, 1),
    ],
)
def test_trl_counts_responses(more, processes, prompts, updates):
    design, notes = design_of(TRL | more, "", processes)
    assert (design.prompts, design.updates_per_round, design.rollouts) == (
        prompts,
        updates,
        (TRL | more)["num_generations"],
    )
    assert prompts is not None or notes


def test_trls_defaults_are_said():
    design, _ = design_of({"num_generations": 16}, "trl", 1)
    assert design.rollouts == 16 and any("per_device_train_batch_size is not stated" in text for text in design.assumed)


def verl(**more):
    actor = {
        "ppo_mini_batch_size": 64,
        "ppo_epochs": 2,
        "optim": {"lr": "1e-6"},
        "use_kl_loss": True,
        "kl_loss_coef": 0.001,
        "loss_agg_mode": "token-mean",
    }
    return {
        "actor_rollout_ref": {"actor": actor, "rollout": {"n": 5, "temperature": 1.0}, "model": {"path": "Qwen/x"}},
        "algorithm": {"adv_estimator": "grpo"},
        "data": {"train_batch_size": 256, "max_response_length": 1024},
    } | more


def test_verl_counts_prompts():
    design, notes = design_of(verl(), "", None)
    assert (design.prompts, design.rollouts, design.updates_per_round, design.learning_rate) == (256, 5, 8, 1e-6)
    assert (design.advantage, design.kl_coefficient, design.response_limit, design.loss) == (
        "group_zscore",
        0.001,
        1024,
        "token-mean",
    ) and not notes
    centred, _ = design_of(verl(algorithm={"adv_estimator": "grpo", "norm_adv_by_std_in_grpo": False}), "", None)
    assert centred.advantage == "group_mean"


def test_prime_rl_counts_responses():
    design, _ = design_of(
        {"orchestrator": {"batch_size": 128, "group_size": 16}, "trainer": {"optim": {"lr": 3e-6}}}, "", None
    )
    assert (design.prompts, design.rollouts, design.updates_per_round, design.learning_rate) == (8, 16, 1, 3e-6)
    tokens, notes = design_of({"orchestrator": {"token_batch_size": 10**6, "group_size": 8}}, "", None)
    assert tokens.prompts is None and any("number of tokens" in note for note in notes)


def test_tinker_counts_groups():
    config = {
        "dataset_builder": {"batch_size": 100, "group_size": 16},
        "learning_rate": 4e-5,
        "num_substeps": 2,
        "loss_fn": "ppo",
    }
    design, _ = design_of(config, "", None)
    assert (design.prompts, design.rollouts, design.updates_per_round, design.advantage, design.loss) == (
        100,
        16,
        2,
        "group_mean",
        "ppo",
    )


FILES = {
    "config.json": ('{"num_generations": 4, "per_device_train_batch_size": 8}', "trl"),
    "rl.toml": ("[orchestrator]\nbatch_size = 64\ngroup_size = 8\n", "prime-rl"),
    "run.sh": (
        "python -m verl.trainer.main_ppo data.train_batch_size=64 \\\n  actor_rollout_ref.rollout.n=5\n",
        "verl",
    ),
    "train.py": (
        "args = GRPOConfig(per_device_train_batch_size=4, num_generations=8)\n# num_generations=16\n",
        "trl",
    ),
    "launch.sh": (
        "accelerate launch --num_processes 4 grpo.py --num_generations 8 --per_device_train_batch_size 4\n",
        "trl",
    ),
    "wandb.yaml": ("num_generations:\n  desc: null\n  value: 8\nlearning_rate:\n  value: 1e-6\n", "trl"),
}


@pytest.mark.parametrize("name", FILES)
def test_a_configuration_is_read_from_any_file(name, tmp_path):
    text, tool = FILES[name]
    (tmp_path / name).write_text(text)
    config = read_config(tmp_path / name)
    assert tool_of_config(config) == tool and design_of(config, "", None)[0].rollouts in (4, 5, 8)


class Evil:
    """What a pickle may be."""

    def __reduce__(self):
        return (open, ("evil", "w"))


def test_a_pickle_runs_nothing(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "training_args.bin").write_bytes(pickle.dumps({"num_generations": 8, "x": Evil()}))
    assert design_of(read_config(tmp_path / "training_args.bin"), "", None)[0].rollouts == 8
    assert sorted(path.name for path in tmp_path.iterdir()) == ["training_args.bin"]


BAD = {
    "empty.json": "{}",
    "list.json": "[1]",
    "cut.json": '{"a":',
    "cut.toml": "[a",
    "text.sh": "hello",
    "deep.json": '{"a":' * 500 + "1" + "}" * 500,
    "bad.yaml": "a: [",
    "big.json": " " * (1 << 21),
    "zip.bin": "PK\x03\x04",
}


@pytest.mark.parametrize("name", BAD)
def test_what_is_no_configuration_is_a_line(name, tmp_path):
    (tmp_path / name).write_text(BAD[name])
    with pytest.raises(UserError, match="allowed") as refused:
        read_config(tmp_path / name)
    assert name in str(refused.value)
