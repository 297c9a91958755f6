"""Runs of the trainer that a test can afford: a model of width 16, few problems, short responses."""

import numpy as np
import pytest
import torch

import rftlab.llm.training.samples
from rftlab import KL, Design, Estimator, TaskConfig
from rftlab.llm.config import AdamW, Compute, Evaluation, LLMRun, LoRA, Model, Tiny
from rftlab.llm.policy.tensors import load_file
from rftlab.llm.rewards.math_pool import Checks
from rftlab.llm.rewards.verify import Scores
from rftlab.llm.tasks.task import Sizes
from rftlab.llm.train import TrainingCallbacks, train

SIZES = Sizes(train=30, validation=20, test=20, pretrain=60)
TINY = Tiny(width=16, heads=2, hidden=32, target=0.0, check_every=40, batch=30)
"""Pre-trained for 40 steps: it has learned how responses look, and hardly any sum."""
GRPO = Estimator(kl=KL("k3", 0.05))


def run_of(rollouts=4, rounds=8, task="mix97", eval_every=4, **more):
    """A run; keywords of Design, LLMRun, LoRA, Evaluation and Compute find their place."""
    places = {"evaluation": Evaluation, "compute": Compute, "lora": LoRA, "optimizer": AdamW, "design": Design}
    parts = {
        name: {key: more.pop(key) for key in list(more) if key in kind.__dataclass_fields__ and key != "device"}
        for name, kind in places.items()
    }
    sizes = {"batch_size": 6, "rollouts": rollouts, "rounds": rounds, "eval_every": eval_every}
    parts["design"] = {"estimator": GRPO} | sizes | parts["design"]
    parts["optimizer"] = {"learning_rate": 3e-3} | parts["optimizer"]
    built = {name: kind(**parts[name]) for name, kind in places.items()}
    model = Model(tiny=TINY, max_prompt_length=16, max_response_length=12)
    return LLMRun(TaskConfig(task, sizes=SIZES), model, **built, **more)


def even(verifier, responses, truths, pool):
    """In the verifier's place, because sums are out of reach of so small a model: a response must end in an even
    digit, and strictly have the marker."""
    flexible = np.array([float(response[-1:] in tuple("02468")) for response in responses])
    return Scores(flexible * ["####" in response for response in responses], flexible, Checks())


@pytest.fixture(autouse=True)
def one_cache(model_cache, monkeypatch):
    """Base models are trained once per test session, outside the user's cache; a reward within reach; one thread."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(model_cache))
    monkeypatch.setattr(rftlab.llm.training.samples, "score", even)
    torch.set_num_threads(1)


def same(a, b):
    """Bitwise equality of two outcomes, times and memory aside."""
    curves = all(
        np.array_equal(x, y, equal_nan=True)
        for name, x, y in zip(a.curve._fields, a.curve, b.curve, strict=True)
        if name != "seconds"
    )
    measured = [name for name in a.metrics if not name.startswith(("seconds", "peak"))]
    return curves and a.metrics[measured].equals(b.metrics[measured]) and a.diverged_at == b.diverged_at


def weights_of(folder, rounds=8):
    """The weights of a checkpoint, by name."""
    return load_file(folder / "checkpoints" / f"{rounds:06}" / "model.safetensors")


def same_weights(one, other):
    """Bitwise equality of the checkpoints of two runs after round 8."""
    mine, theirs = weights_of(one), weights_of(other)
    return mine.keys() == theirs.keys() and all(torch.equal(mine[name], theirs[name]) for name in mine)


class Killed(BaseException):
    """Stands for the end of the process."""


def killed_at(run, folder, rounds, **more):
    """Run until so many rounds are done, then stop as a kill would; `more` goes to `train`."""

    def stop(done):
        if done == rounds:
            raise Killed

    with pytest.raises(Killed):
        train(run, folder, TrainingCallbacks(rounds=stop), **more)
