"""verl itself reads the folders of `rftlab reproduce --level llm --backend verl`: `make test-verl`.

No GPU, no Ray, no run: verl's configuration is composed and validated, its data set and its reward are loaded.
"""

from dataclasses import replace
from importlib.util import find_spec
from types import SimpleNamespace

import pytest

if not find_spec("verl"):
    pytest.skip("needs verl, in an environment of its own: make test-verl", allow_module_level=True)

from hydra import compose, initialize_config_dir
from omegaconf import OmegaConf
from verl.trainer.ppo.core_algos import get_adv_estimator_fn, get_policy_loss_fn
from verl.trainer.ppo.reward import get_custom_reward_fn
from verl.trainer.ppo.utils import need_critic, need_reference_policy
from verl.utils.config import validate_config
from verl.utils.dataset.rl_dataset import RLHFDataset

from rftlab import Design, preset, start_at
from rftlab.llm.config import LoRA, model_config
from rftlab.studies.data.paper.experiments import EXPERIMENTS
from rftlab.studies.data.runs.points import RunSpec, study_points
from rftlab.studies.integrations.cluster import Cluster
from rftlab.studies.integrations.verl_study.files import write_pair
from rftlab.studies.integrations.verl_study.settings import refused, verl_config
from rftlab.studies.readers.designs import read_design

PAIR, CLUSTER = "smollm2-words", Cluster(2, 4, 2, model="/models/smollm2")
START = CLUSTER.changed(start_at(PAIR, "llm"))
CELLS = [
    replace(point, run=CLUSTER.changed(point.llm_run))
    for point in study_points(list(EXPERIMENTS.values()), "llm", [PAIR], 1, None)
]
CELLS = [point for point in CELLS if not refused(point.llm_run, CLUSTER)]
ADDED = {("algorithm", "rftlab", "support")}
"""Settings that verl does not have: our plug-in reads them."""


def compose_in(folder, *more):
    """What `run.sh` has verl compose, without its working folder."""
    data = folder.parent / "data"
    places = [
        f"data.train_files='{data}/train.parquet'",
        f"data.val_files=['{data}/test.parquet','{data}/training-questions.parquet']",
        f"reward.custom_reward_function.path='{data}/reward.py'",
        f"trainer.default_local_dir='{folder}/checkpoints'",
    ]
    with initialize_config_dir(str(folder), version_base=None):
        return compose("verl", overrides=[*places, *more])


def leaves(settings, above=()):
    """Every setting with its place."""
    for name, value in settings.items():
        if isinstance(value, dict):
            yield from leaves(value, (*above, name))
        else:
            yield (*above, name), value


def at(config, place):
    for name in place:
        assert name in config, place
        config = config[name]
    return config


def exotic(card, **design):
    """A run of a card that no cell of the experiments has."""
    return replace(START, design=Design(rollouts=8, estimator=preset(card), **design))


OPTIMIZER = replace(START.optimizer, eps=1e-6, max_grad_norm=float("inf"), warmup_steps=7)
EXOTIC = [
    RunSpec(PAIR, replace(exotic("gspo", minibatches=4, epochs=2), lora=LoRA(8, targets=("q_proj", "v_proj")))),
    RunSpec(PAIR, exotic("tis_sequence")),
    RunSpec(PAIR, exotic("grpo_openrlhf")),
    RunSpec(PAIR, replace(exotic("dr_grpo"), optimizer=OPTIMIZER)),
]


@pytest.fixture(scope="module")
def written(tmp_path_factory):
    return write_pair(tmp_path_factory.mktemp("a, b=c"), [*CELLS, *EXOTIC], CLUSTER)[0]


@pytest.fixture(scope="module")
def default(written):
    """verl's own configuration."""
    (written / "own").mkdir()
    head = (written / CELLS[0].id / "verl.yaml").read_text().partition("algorithm:")[0]
    (written / "own" / "verl.yaml").write_text(head)
    return OmegaConf.to_container(compose_in(written / "own"), resolve=False)


NAMES = ("32x1-minimalist", "32x1+7-paper_text", "1x256-paper_text")
CHOSEN = [point for point in CELLS if point.cell in NAMES] + EXOTIC


@pytest.mark.parametrize("point", CHOSEN, ids=lambda point: point.cell)
def test_verl_takes_every_setting_as_it_is_meant(point, written, default):
    config = compose_in(written / point.id)
    found = OmegaConf.to_container(config, resolve=True)
    for place, value in leaves(verl_config(point.llm_run, point.id, CLUSTER)):
        assert at(found, place) == value, place
        if place not in ADDED and place[:-1] != ("actor_rollout_ref", "actor", "optim", "override_optimizer_config"):
            at(default, place)
    config.actor_rollout_ref.rollout.name = "none"  # with LoRA an installed vLLM would be asked for its largest rank
    validate_config(config, need_reference_policy(config), need_critic(config))
    design, _ = read_design(found, "", None)
    mine, _ = read_design(model_config(point.llm_run), "rftlab", None)
    assert replace(design, assumed=()) == replace(mine, assumed=())
    assert need_reference_policy(config) is point.llm_run.needs_reference and not need_critic(config)
    assert get_adv_estimator_fn(config.algorithm.adv_estimator).__name__ == config.algorithm.adv_estimator
    assert get_policy_loss_fn(config.actor_rollout_ref.actor.policy_loss.loss_mode)


def test_a_setting_that_verl_lacks_is_found(default):
    with pytest.raises(AssertionError, match="ppo_epoch"):
        at(default, ("actor_rollout_ref", "actor", "ppo_epoch"))


def test_verl_loads_the_reward(written):
    reward = get_custom_reward_fn(compose_in(written / CELLS[0].id))
    row = {"index": 0, "split": "test", "verifier": "gsm8k"}
    asked = {"data_source": "words", "ground_truth": "5", "extra_info": row}
    assert reward(solution_str="#### 5", **asked) == {"score": 1.0, "acc": 1.0}
    assert reward(solution_str="5", **asked)["score"] == 0.0


def test_verl_reads_the_data(written, tmp_path, monkeypatch):
    monkeypatch.setattr("datasets.config.HF_DATASETS_CACHE", tmp_path)
    config = compose_in(written / CELLS[0].id, f"+data.cache_dir={tmp_path}")
    words = SimpleNamespace(
        apply_chat_template=lambda chat, **_: list(range(sum(len(m["content"]) for m in chat) // 9))
    )
    OmegaConf.set_struct(config, False)
    config.data.filter_overlong_prompts = False  # its worker processes are not what is tested
    found = RLHFDataset(list(config.data.val_files), words, config.data)
    assert len(found) == 200 + 200
    row = found[0]
    assert row["raw_prompt"][-1]["role"] == "user" and row["data_source"] == "words"
    assert row["reward_model"]["ground_truth"] and row["extra_info"]["verifier"] == "gsm8k"
    assert found[399]["data_source"] == "words-training"
