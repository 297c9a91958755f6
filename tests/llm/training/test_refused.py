"""A run that is refused leaves its folder free, so that the corrected command can have it; a run with rounds in it
does not."""

import json
from dataclasses import replace

import pytest

import rftlab.llm.training.trainer
from rftlab.llm.config import Compute, Model
from rftlab.llm.train import train
from rftlab.shared.plumbing.errors import UserError
from tests.support.trainer.tiny_runs import killed_at, one_cache, run_of, same  # noqa: F401

RUN = run_of(rounds=4)
REFUSED = {
    "device": (replace(RUN, compute=Compute(device="cuda:99")), "compute.device = 'cuda:99': "),
    "batch": (run_of(batch_size=31), "batch_size = 31 is larger than the training set; allowed: 1 to 30"),
    "adapters": (replace(RUN, lora=replace(RUN.lora, rank=4, targets=("nope",))), "lora."),
    "prompts": (
        replace(RUN, model=replace(RUN.model, max_prompt_length=3)),
        "prompt limit = 3 tokens; each of the 30 prompts is longer",
    ),
    "responses": (
        replace(RUN, model=replace(RUN.model, max_response_length=4000)),
        "model.max_prompt_length + model.max_response_length = 4016; allowed: at most",
    ),
    "model": (replace(RUN, model=Model("/no/such/model"), task=replace(RUN.task, name="words")), "/no/such/model"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_the_corrected_command_may_have_the_folder(name, tmp_path):
    run, message = REFUSED[name]
    with pytest.raises(UserError) as caught:
        train(run, tmp_path / "run")
    assert message in str(caught.value) and "\n" not in str(caught.value)
    assert not list(tmp_path.rglob("*.parquet")) and not (tmp_path / "run" / "checkpoints").exists()
    assert same(train(RUN, tmp_path / "run"), train(RUN, tmp_path / "other"))
    assert json.loads((tmp_path / "run" / "config.json").read_bytes()) == json.loads(
        (tmp_path / "other" / "config.json").read_bytes()
    )


def test_one_that_fails_in_its_first_round_leaves_it_free_too(tmp_path, monkeypatch):
    """After its first evaluation, as where memory is too little."""

    def too_large(*arguments, **more):
        raise UserError("out of memory")

    with monkeypatch.context() as patch:
        patch.setattr(rftlab.llm.training.trainer.Trainer, "round", too_large)
        with pytest.raises(UserError, match="out of memory"):
            train(replace(RUN, seed=1), tmp_path / "run")
    assert (tmp_path / "run" / "curve.parquet").exists()
    assert same(train(RUN, tmp_path / "run"), train(RUN, tmp_path / "other"))


def test_the_first_rounds_that_are_kept_take_the_folder(tmp_path):
    run = replace(RUN, checkpoint_every=1)
    killed_at(run, tmp_path, 2)
    with pytest.raises(UserError, match="seed = 0 there, 1 here; name another folder"):
        train(replace(run, seed=1), tmp_path)


@pytest.mark.parametrize("text", ['{"model_type": "llama"}', "[]", "half of"])
def test_a_configuration_of_somebody_else_stays(text, tmp_path):
    """Such as that of a model's folder."""
    (tmp_path / "config.json").write_text(text)
    with pytest.raises(UserError, match=r"[;,] (or )?name another folder$"):
        train(RUN, tmp_path)
    assert (tmp_path / "config.json").read_text() == text
