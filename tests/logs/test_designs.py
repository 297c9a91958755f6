"""What are my B and K? Configurations of trainers in rftlab's terms."""

import json
import pickle

import pytest

from rftlab.shared.plumbing.errors import UserError
from rftlab.studies.readers import read_logs
from rftlab.studies.readers.designs import detect_trainer, read_design
from rftlab.studies.readers.designs.config_file import read_config
from tests.support.logs.reading import told

TRL = {"per_device_train_batch_size": 4, "gradient_accumulation_steps": 8, "num_generations": 8}


@pytest.mark.parametrize(
    ("more", "processes", "prompts", "updates"),
    [
        ({}, 2, 8, 1),  # 4 x 2 x 8 responses of 8 a prompt
        ({}, None, None, 1),
        ({"num_iterations": 2}, 2, 8, 2),
        ({"steps_per_generation": 16}, 2, 16, 2),
        ({"generation_batch_size": 64}, 2, 8, 1),
        ({"steps_per_generation": 1}, 2, 8, 1),
        ({"generation_batch_size": 16}, 2, 8, 1),
        ({"steps_per_generation": 1, "num_iterations": 2}, 2, 4, 1),
        ({"generation_batch_size": 64}, None, 8, None),
        # as after __post_init__: two processes
        ({"generation_batch_size": 128, "steps_per_generation": 16}, None, 16, 2),
        ({"num_generations": 7}, 2, None, 1),
    ],
)
def test_trl_counts_responses(more, processes, prompts, updates):
    design, notes = read_design(TRL | more, "", processes)
    assert (design.prompts, design.updates_per_round) == (prompts, updates)
    assert design.rollouts == (TRL | more)["num_generations"] and (prompts is not None or notes)


def test_no_default_of_trl_stands_where_a_name_of_ones_own_may_state_the_setting():
    own = {"": 1, "num_generations": 8, "batch_size": 16, "grad_accum": 4, "lr": 5e-5, "per_device_eval_batch_size": 8}
    design, notes = read_design(own, "", 1)
    assert (design.rollouts, design.prompts, design.updates_per_round, design.learning_rate) == (8, None, None, None)
    assert [note.split()[-4] for note in notes] == ["batch_size", "grad_accum", "lr"]
    assert read_design({"num_generations": 8, "per_device_eval_batch_size": 4}, "", 1)[0].learning_rate == 1e-6


FIRST = {"per_device_train_batch_size": 4, "gradient_accumulation_steps": 2, "num_generations": 6, "beta": 0.04,
         "vllm_device": "auto", "adam_beta1": 0.9}  # fmt: skip
"""Some of TRL 0.14's arguments, whose per_device_train_batch_size counts prompts."""


@pytest.mark.parametrize(("more", "prompts"), [({}, 16), ({"reward_weights": None, "num_generations": 4}, 4)])
def test_the_first_grpo_of_trl_counts_prompts(more, prompts):
    assert read_design(FIRST | more, "", 2)[0].prompts == prompts
    recipe = TRL | {"vllm_device": "auto", "num_processes": 3}  # which 0.15 refuses, for 12 is no multiple of 8
    assert read_design(recipe, "", None)[0].prompts is None and read_design(recipe, "", None)[1]
    assert read_design(recipe | {"num_processes": 2}, "", None)[0].prompts == 8


ACTOR = {"ppo_mini_batch_size": 64, "ppo_epochs": 2, "optim": {"lr": "1e-6"}, "use_kl_loss": True,
         "kl_loss_coef": 0.001, "loss_agg_mode": "token-mean"}  # fmt: skip
VERL = {
    "actor_rollout_ref": {"actor": ACTOR, "rollout": {"n": 5, "temperature": 1.0}, "model": {"path": "Qwen/x"}},
    "algorithm": {"adv_estimator": "grpo"},
    "data": {"train_batch_size": 256, "max_response_length": 1024},
}


def test_verl_counts_prompts():
    design, notes = read_design(VERL, "", None)
    assert (design.prompts, design.rollouts, design.updates_per_round, design.learning_rate) == (256, 5, 8, 1e-6)
    assert (design.advantage, design.kl_coefficient, design.response_limit) == ("group_zscore", 0.001, 1024)
    assert design.loss == "token-mean" and not notes
    centred = VERL | {"algorithm": {"adv_estimator": "grpo", "norm_adv_by_std_in_grpo": False}}
    assert read_design(centred, "", None)[0].advantage == "group_mean"


@pytest.mark.parametrize(
    ("config", "rank"),
    [
        (VERL | {"actor_rollout_ref": VERL["actor_rollout_ref"] | {"model": {"lora_rank": 8}}}, 8),
        (VERL, None),
        ({"num_generations": 8, "use_peft": True, "lora_r": 32}, 32),
        ({"num_generations": 8, "use_peft": False, "lora_r": 16}, 0),  # the default of TRL's scripts, not in use
        ({"num_generations": 8, "lora_r": "all"}, None),
    ],
)
def test_the_rank_of_adapters_is_a_fact_where_it_is_stated(config, rank):
    assert read_design(config, "", None)[0].adapter_rank == rank


@pytest.mark.parametrize("more", [{"loss_type": "nll"}, {"beta": 0.1, "loss_type": "sigmoid"}])
def test_all_arguments_of_another_trainer_of_trl_are_no_design_of_grpo(more):
    """They share names with GRPO's, and its defaults are not theirs."""
    config = {"adam_beta1": 0.9, "per_device_train_batch_size": 4, "learning_rate": 1e-5, **more}
    assert read_design(config, "", None)[0].rollouts == 8  # some of GRPO's, and its K
    config |= {"logging_nan_inf_filter": True}
    design, notes = read_design(config, "", None)
    assert (design.rollouts, design.advantage, design.loss, design.learning_rate) == (None, None, None, 1e-5)
    assert not design.assumed and "another trainer than GRPO's" in notes[0]


FILES = {
    "config.json": ('{"num_generations": 4, "per_device_train_batch_size": 8}', "trl"),
    "grpo.toml": ("num_generations = 8\nper_device_train_batch_size = 8\n", "trl"),
    "run.sh": ("python -m verl.trainer.main_ppo data.train_batch_size=64 \\\n actor_rollout_ref.rollout.n=5\n", "verl"),
    "train.py": ("args = GRPOConfig(per_device_train_batch_size=4, num_generations=8)\n# num_generations=16\n", "trl"),
    "launch.sh": ("accelerate launch grpo.py --num_generations 8 --per_device_train_batch_size 4\n", "trl"),
    "wandb.yaml": ("num_generations:\n  desc: null\n  value: 8\nlearning_rate:\n  value: 1e-6\n", "trl"),
}


@pytest.mark.parametrize("name", FILES)
def test_a_configuration_is_read_from_any_file(name, tmp_path):
    text, tool = FILES[name]
    (tmp_path / name).write_text(text)
    config = read_config(tmp_path / name)
    assert detect_trainer(config) == tool and read_design(config, "", None)[0].rollouts in (4, 5, 8)


class Evil:
    """What a pickle may be."""

    def __reduce__(self):
        return (open, ("evil", "w"))


def test_a_pickle_runs_nothing(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "training_args.bin").write_bytes(pickle.dumps({"num_generations": 8, "x": Evil()}))
    assert read_design(read_config(tmp_path / "training_args.bin"), "", None)[0].rollouts == 8
    assert sorted(path.name for path in tmp_path.iterdir()) == ["training_args.bin"]


CYCLE: list = []
CYCLE.append(CYCLE)
LAUGHS: list = [1]
for _ in range(60):
    LAUGHS = [LAUGHS, LAUGHS]
BAD = {
    "empty.json": "{}", "list.json": "[1]", "cut.json": '{"a":', "cut.toml": "[a", "text.sh": "hello",
    "deep.json": '{"a":' * 500 + "1" + "}" * 500, "bad.yaml": "a: [", "big.json": " " * (1 << 21),
    "zip.bin": "PK\x03\x04",
    "place.bin": b"\x80\x02Nr\xff\xff\xff\x7f.", "cycle.bin": pickle.dumps({"a": CYCLE}),
    "laughs.bin": pickle.dumps({"a": LAUGHS}),
}  # fmt: skip


@pytest.mark.parametrize("name", BAD)
def test_what_is_no_configuration_is_a_line(name, tmp_path):
    (tmp_path / name).write_bytes(BAD[name] if isinstance(BAD[name], bytes) else BAD[name].encode())
    with pytest.raises(UserError, match="allowed") as refused:
        read_config(tmp_path / name)
    assert name in str(refused.value)


def test_processes_are_counted_and_references_followed(tmp_path):
    sizes = {"per_device_train_batch_size": 16, "gradient_accumulation_steps": 16, "num_generations": 7}
    settings = "num_processes: 7\n" + "".join(f"{name}: {size}\n" for name, size in sizes.items())
    script = "accelerate launch --num_processes=7 grpo.py " + " ".join(f"--{one} {n}" for one, n in sizes.items())
    for name, text in (("grpo.yaml", settings), ("grpo.sh", script)):
        assert told(tmp_path, text, name, None)[0].prompts == 256
    text = "data: {train_batch_size: 256}\nactor_rollout_ref:\n  rollout: {n: 8}\n  actor:\n"
    text += "    ppo_mini_batch_size: ${data.train_batch_size}\n    ppo_epochs: ${missing}\n"
    assert told(tmp_path, text.replace("${missing}", "2"), "verl.yaml")[0].updates_per_round == 2
    assert told(tmp_path, text.replace("${missing}", "${oc.env:EPOCHS}"), "verl.yaml")[0].updates_per_round is None


@pytest.mark.parametrize(
    ("train", "gen", "enable", "prompts", "said"),
    [
        (256, None, None, 256, ""),
        (256, 256, None, 256, ""),
        (256, 512, None, 512, "all of gen_batch_size = 512 prompts"),
        (256, 512, False, 512, "all of gen_batch_size = 512 prompts"),
        (256, 768, True, 256, "samples batches of 768 (gen_batch_size) until it has them"),
        (256, None, True, 256, "samples batches of 256 (gen_batch_size) until it has them"),
        (256, "${GEN}", True, 256, "a number that could not be read"),
        (256, "${GEN}", False, None, "no whole number"),
        (256, 512, "${FILTER}", None, "which algorithm.filter_groups.enable decides"),
        (256, 256, "${FILTER}", 256, ""),
        (None, 512, None, 512, "all of gen_batch_size = 512 prompts"),
    ],
)
@pytest.mark.parametrize("dotted", [False, True])
def test_verls_filter_decides_which_batch_is_trained_on(train, gen, enable, prompts, said, dotted):
    """recipe/dapo/dapo_ray_trainer.py: the loader gives gen_batch_size prompts; filtered batches are gathered until
    there are train_batch_size, unfiltered ones are trained on whole."""
    stated = {"data.train_batch_size": train, "data.gen_batch_size": gen, "algorithm.filter_groups.enable": enable}
    stated = {name: value for name, value in stated.items() if value is not None}
    config = {"actor_rollout_ref.rollout.n": 8, "actor_rollout_ref.actor.ppo_mini_batch_size": 64} | stated
    known, notes = read_design(config if dotted else nested(config), "", None)
    assert (known.prompts, known.rollouts) == (prompts, 8)
    assert known.updates_per_round == (prompts // 64 if prompts else None)
    assert said in " | ".join(notes) and (bool(said) or "gen_batch_size" not in " | ".join(notes))


def nested(config: dict) -> dict:
    """Names with points as tables in tables."""
    tables: dict = {}
    for path, value in config.items():
        place = tables
        for part in path.split(".")[:-1]:
            place = place.setdefault(part, {})
        place[path.rpartition(".")[2]] = value
    return tables


def test_what_is_left_out_is_the_trainers_default_and_said():
    config = {"actor_rollout_ref": {"rollout": {"n": 8}}, "algorithm": {"adv_estimator": "grpo"}}
    known, _ = read_design(config, "", None)
    assert (known.prompts, known.rollouts, known.updates_per_round, known.learning_rate) == (1024, 8, 4, 1e-6)
    said = " | ".join(known.assumed)
    for name, value in (("data.train_batch_size", 1024), ("ppo_mini_batch_size", 256), ("optim.lr", 1e-6)):
        assert f"{name} is not stated; the default of verl 0.9.1 is {value}" in said
    assert "rollout.n" not in said
    design, _ = read_design({"num_generations": 16}, "trl", 1)
    assert design.rollouts == 16 and any("per_device_train_batch_size is not stated" in text for text in design.assumed)


PLAIN = {"group_size": 8, "rollout_batch_size": 256, "train_batch_size": 64, "epochs_per_rollout_batch": 2,
         "gradient_accumulation_steps": 32, "learning_rate": 1e-5, "loss_type": "grpo_clip", "cliprange": 0.2,
         "use_std_normalization": False, "advantage_eps": 1e-6, "n_grpo_steps": 200}  # fmt: skip
"""A plain training script's settings, as in CS336's assignment 5."""


def test_plain_scripts_count_completions_and_other_trainers_words_are_not_taken_for_theirs():
    for config in (PLAIN, {"training": PLAIN}, {name: {"value": given} for name, given in PLAIN.items()}):
        assert detect_trainer(config) == "CS336"
        known, notes = read_design(config, "", None)
        assert (known.prompts, known.rollouts, known.updates_per_round, known.learning_rate) == (32, 8, 8, 1e-5)
        assert (known.advantage, known.loss, known.assumed) == ("group_mean", "grpo_clip, clip 0.2", ())
        (note,) = notes
        assert note.startswith("rollout_batch_size = 256 counts completions, as in CS336")
    # OpenRLHF's and slime's rollout_batch_size counts prompts; ROLL's group_size stands in another table.
    assert detect_trainer(PLAIN | {"n_samples_per_prompt": 8}) == "OpenRLHF (old flags)"
    assert detect_trainer({"rollout_batch_size": 32, "train_env": {"group_size": 8}}) == ""
    assert detect_trainer(PLAIN | {"num_generations": 8}) == "trl"
    hostile = {"x" * 10_000: PLAIN} | {f"t{i}": {"lr": i, "group_size": i} for i in range(20_000)} | PLAIN
    known, notes = read_design(hostile, "", None)
    assert known.rollouts is None and sum(map(len, notes)) < 1000


SIZES = {"n_samples_per_prompt": 8, "rollout_batch_size": 32}
NAMED = {
    "OpenRLHF": (
        {"rollout": {"n_samples_per_prompt": 8, "batch_size": 32}, "train": {"batch_size": 64, "max_epochs": 2},
         "algo": {"advantage": {"estimator": "group_norm"}, "kl": {"init_coef": 0.0}}, "actor": {"eps_clip": 0.2}},
        (32, 8, 8, 1e-6, "group_zscore", "clip 0.2", 0.0),
    ),
    "OpenRLHF (old flags)": (
        SIZES | {"train_batch_size": 128, "advantage_estimator": "rloo", "actor_learning_rate": "5e-7"},
        (32, 8, 2, 5e-7, "leave_one_out", None, 0.01),
    ),
    "slime": (
        SIZES | {"global_batch_size": 128, "disable_grpo_std_normalization": True, "kl_loss_coef": 0.1,
                 "eps_clip": 0.2, "eps_clip_high": 0.28},
        (32, 8, 2, 1e-6, "group_mean", "clip 0.2/0.28", 0.0),
    ),
    "SkyRL": (
        {"generator.n_samples_per_prompt": "5", "trainer.train_batch_size": "100",
         "trainer.policy_mini_batch_size": "32", "trainer.algorithm.grpo_norm_by_std": "false"},
        (100, 5, 4, 1e-6, "group_mean", None, 0.001),
    ),
    "EasyR1": (
        {"algorithm": {"adv_estimator": "grpo", "kl_coef": 0.01, "disable_kl": True},
         "data": {"rollout_batch_size": 512},
         "worker": {"rollout": {"n": 5}, "actor": {"global_batch_size": 128, "optim": {"lr": 1e-6}}}},
        (512, 5, 4, 1e-6, "group_zscore", None, 0.0),
    ),
    "AReaL": (
        {"gconfig": {"n_samples": 4}, "train_dataset": {"batch_size": 256},
         "actor": {"reward_norm": {"mean_level": "group", "std_level": "group", "group_size": "${gconfig.n_samples}"},
                   "kl_ctl": 0.0, "ppo_n_minibatches": 2, "optimizer": {"lr": 1.7e-5}, "eps_clip": 0.4}},
        (256, 4, 2, 1.7e-5, "group_zscore", "clip 0.4", 0.0),
    ),
    "open-instruct": (
        {"num_unique_prompts_rollout": "8", "num_samples_per_prompt_rollout": "4", "learning_rate": "1e-6",
         "per_device_train_batch_size": "1", "num_epochs": "2", "advantage_normalization_type": "centered"},
        (8, 4, 2, 1e-6, "group_mean", None, 0.05),
    ),
    "ROLL": (
        {"num_return_sequences_in_group": 8, "rollout_batch_size": 64, "norm_mean_type": "group", "norm_std_type": None,
         "actor_train": {"training_args": {"learning_rate": 1e-6}}},
        (64, 8, None, 1e-6, "group_mean", None, None),
    ),
}  # fmt: skip
"""Configurations, and what they say: prompts, rollouts, updates, rate, advantage, loss, KL coefficient."""


@pytest.mark.parametrize("trainer", NAMED)
def test_a_trainer_that_names_its_settings_otherwise_is_known(trainer):
    config, said = NAMED[trainer]
    assert detect_trainer(config) == trainer
    known, _ = read_design(config, "", None)
    assert (known.prompts, known.rollouts, known.updates_per_round, known.learning_rate, known.advantage, known.loss,
            known.kl_coefficient) == said  # fmt: skip


def test_an_update_that_does_not_divide_a_round_and_an_advantage_that_is_not_known_are_left_open():
    known, notes = read_design(SIZES | {"global_batch_size": 100, "advantage_estimator": "on_policy"}, "", None)
    assert (known.updates_per_round, known.advantage) == (None, None)
    assert any("no multiple of global_batch_size = 100" in note for note in notes)


def test_settings_of_flags_with_points_are_read(tmp_path):
    """OpenRLHF's, of which some begin as verl's do, and SkyRL's."""
    flags = tmp_path / "run.sh"
    flags.write_text("python3 -m openrlhf.cli.train_ppo_ray --data.max_len 2048 --rollout.n_samples_per_prompt 8 "
                     "--train.batch_size 64 --actor.adam.lr 5e-7\n")  # fmt: skip
    known, _ = read_design(read_config(flags), "", None)
    assert (known.prompts, known.rollouts, known.learning_rate, known.updates_per_round) == (1024, 8, 5e-7, 128)
    flags.write_text("uv run -m skyrl.train.entrypoints.main_base trainer.train_batch_size=64 \\\n"
                     "  generator.n_samples_per_prompt=4 trainer.epochs=2\n")  # fmt: skip
    assert read_design(read_config(flags), "", None)[0].rollouts == 4


@pytest.mark.parametrize(
    ("more", "field", "value", "said"),
    [
        ({"use_std_normalization": True}, "advantage", "group_zscore", ""),
        ({"use_std_normalization": "left out"}, "advantage", "group_zscore", "use_std_normalization is not stated"),
        ({"use_std_normalization": "maybe"}, "advantage", None, "use_std_normalization is 'maybe', which is no truth"),
        ({"loss_type": "no_baseline"}, "advantage", "raw", ""),
        ({"loss_type": "left out"}, "advantage", "group_mean", "loss_type is not stated; the default of CS336"),
        ({"loss_type": "a\x1b[31m"}, "advantage", None, "loss_type is 'a"),
        ({"loss_type": "reinforce_with_baseline"}, "loss", "reinforce_with_baseline", ""),
        ({"epochs_per_rollout_batch": "left out"}, "updates_per_round", 4, "epochs_per_rollout_batch is not stated"),
        ({"train_batch_size": "left out"}, "updates_per_round", None, ""),
        ({"train_batch_size": 96}, "updates_per_round", None, "256 is no multiple of train_batch_size = 96"),
        ({"train_batch_size": 512}, "updates_per_round", None, "256 is no multiple of train_batch_size = 512"),
        ({"group_size": 7}, "prompts", None, "256 is no multiple of group_size = 7"),
        ({"group_size": 0}, "prompts", None, "group_size is '0', which is no whole number"),
        ({"rollout_batch_size": "1e400"}, "prompts", None, "rollout_batch_size is '1e400', which is no whole number"),
        ({"rollout_batch_size": [8] * 9999}, "prompts", None, "rollout_batch_size is '[8, 8"),
        ({"eval": {"temperature": 0.0}, "rollout": {"temperature": 1.0}}, "temperature", None, "differ; which one"),
        ({"sampling_temperature": 1.0, "temperature": 0.0}, "temperature", 1.0, ""),
    ],
)
def test_a_guess_on_a_plain_script_is_a_line(more, field, value, said):
    stated = {name: given for name, given in (PLAIN | more).items() if given != "left out"}
    known, notes = read_design(stated, "", None)
    assert getattr(known, field) == value
    lines = [line for line in (*notes, *known.assumed) if "counts completions" not in line]
    assert len(lines) == bool(said) and all(said in line and len(line) < 400 and line.isprintable() for line in lines)


SETTINGS = """
class Config:
    rollout_batch_size: int = 256
    group_size: int = 8
    learning_rate: float = 1e-5
"""
PYTHON = {
    "a class": SETTINGS,
    "an instance": SETTINGS + "train(group_size=config.group_size, max_tokens=args.sampling_max_tokens)\n",
    "a function": "def train(model, *, rollout_batch_size=256, group_size: int = 8, learning_rate=1e-5): ...\n",
    "a dictionary": "n = 8\nconfig = {'rollout_batch_size': 256, 'group_size': n, 'learning_rate': 1e-5}\n",
    "constants": "ROLLOUT_BATCH_SIZE = 256\nGROUP_SIZE = 8\nLR = 1e-5\ninit(group_size=GROUP_SIZE, lr=LR)\n",
    "argparse": "".join(f"p.add_argument('--{name.replace('_', '-')}', type=float, default={PLAIN[name]})\n"
                        for name in ("rollout_batch_size", "group_size", "learning_rate")),
}  # fmt: skip


@pytest.mark.parametrize("text", PYTHON.values(), ids=PYTHON)
def test_a_plain_script_is_read_and_not_run(text, tmp_path):
    known, notes = told(tmp_path, "import torch\n" + text, "train.py")
    assert (known.prompts, known.rollouts, known.learning_rate) == (32, 8, 1e-5)
    assert "settings count as the script has them; its arguments may say otherwise" in notes


@pytest.mark.parametrize(
    ("more", "why"),
    [
        ("if debug:\n    config['group_size'] = 1\n", "group_size is 8 or 1, which the script sets more than once"),
        ("config.group_size = 2 * n\n", "group_size is 2 * n or 8, which the script sets more than once"),
    ],
)
def test_what_a_plain_script_sets_twice_is_unknown(more, why, tmp_path):
    known, notes = told(tmp_path, SETTINGS + more, "train.py")
    assert known.rollouts is known.prompts is None and notes.count(why) == 1


def test_flags_of_a_plain_script_are_read_from_the_command(tmp_path):
    command = "uv run python grpo.py --group-size 8 --rollout-batch-size=256 --train_batch_size 128\n"
    known, _ = told(tmp_path, command, "run.sh")
    assert (known.prompts, known.rollouts, known.updates_per_round) == (32, 8, 2)
    known, notes = told(tmp_path, command + command.replace("size 8", "size 4"), "sweep.sh")
    assert known.rollouts is None and any("differs between 2 commands" in note for note in notes)


@pytest.mark.parametrize(("batch", "prompts"), [(8, 2), (4, None), (6, None)])
def test_gpus_that_share_the_batch_of_one_process_are_told_by_the_state(batch, prompts, tmp_path):
    arguments = {"per_device_train_batch_size": 4, "gradient_accumulation_steps": 1, "num_generations": 4}
    (tmp_path / "training_args.bin").write_bytes(pickle.dumps(arguments))
    history = [{"step": step, "reward": 0.5} for step in (1, 2, 3)]
    (tmp_path / "trainer_state.json").write_text(json.dumps({"log_history": history, "train_batch_size": batch}))
    (run,) = read_logs([tmp_path / "trainer_state.json"])
    assert run.design.prompts == prompts and any("2 GPUs of one process" in note for note in run.notes) == (batch == 8)
