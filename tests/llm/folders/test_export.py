"""Folders of `rftlab train`: what `rftlab export` writes is the policy that was trained, and `status`, `compare` and
`report` see them wherever they lie."""

import json
import re
import shutil
from dataclasses import replace

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file
from transformers import AutoModelForCausalLM, AutoTokenizer, GenerationConfig

from rftlab import Compute, LoRA, UserError, train
from rftlab.llm.export import export, symbol_tokenizer
from rftlab.llm.policy.packing import Responses, packed
from rftlab.llm.policy.policy import Policy
from rftlab.llm.policy.tensors import WEIGHTS
from rftlab.llm.stored import locked, stored_run
from rftlab.llm.tasks.arithmetic import END, START, SYMBOLS, encode_symbols
from rftlab.llm.training.checkpoint import prune
from rftlab.shared.plumbing.callbacks import noop
from rftlab.studies.cli.trained import Export
from rftlab.studies.data.runs import store
from tests.support.machine.here import refused, shown
from tests.support.trainer.chat_models import chat_run, data, folder  # noqa: F401
from tests.support.trainer.own_rewards import digits
from tests.support.trainer.tiny_runs import killed_at, one_cache, run_of  # noqa: F401


@pytest.fixture(scope="module")
def results(tmp_path_factory, model_cache):
    """A folder with a finished run, one that was killed, both with a reward of their own, and something else."""
    place = tmp_path_factory.mktemp("results")
    torch.set_num_threads(1)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_CACHE_HOME", str(model_cache))
        train(run_of(rounds=8, eval_every=4), place / "whole", reward=digits)
        killed_at(run_of(rounds=8, rollouts=2), place / "cut", 5, reward=digits)
    (place / "notes").mkdir()
    return place


@pytest.fixture
def trained(results):
    return results / "whole"


def logp_of(model, responses):
    return Policy(model, Compute()).all_log_probs(responses)


def loaded(place):
    return AutoModelForCausalLM.from_pretrained(place, dtype=torch.float32, trust_remote_code=False)


def some(prompts):
    tokens, starts = packed([[9, 4, 2], [5, 2], [19, 7, 8, 2]])
    return Responses(tuple(map(tuple, prompts)), np.array([0, 0, 1]), tokens, starts)


def test_the_tiny_model_loads_with_its_tokenizer(trained, tmp_path):
    assert "model after round 8" in shown("export", trained, tmp_path / "out")
    model = loaded(tmp_path / "out")
    tokenizer = AutoTokenizer.from_pretrained(tmp_path / "out", trust_remote_code=False)
    weights = load_file(trained / "checkpoints" / "000008" / WEIGHTS)
    assert all(torch.equal(dict(model.named_parameters())[name], value) for name, value in weights.items())
    ids = tokenizer("12+34%").input_ids
    assert ids == [START, *encode_symbols("12+34%")]
    settings = GenerationConfig.from_pretrained(tmp_path / "out")
    assert settings.eos_token_id == [END] and settings.max_new_tokens == 12 and settings.do_sample
    made = model.generate(torch.tensor([ids]), generation_config=settings)
    assert len(made[0]) > len(ids) and tokenizer.decode([19, 9, 2], skip_special_tokens=True) == "####6"
    for text in ("####58", "1-2*3,4=####-5", "0"):
        assert symbol_tokenizer()(text).input_ids[1:] == encode_symbols(text)
        assert symbol_tokenizer().decode(encode_symbols(text), skip_special_tokens=True) == text


def test_an_earlier_round_and_its_card(trained, tmp_path):
    assert export(stored_run(trained), tmp_path / "out", round_index=4) == 4
    card = (tmp_path / "out" / "README.md").read_text()
    assert "after 4 rounds" in card and "for 4 of 8 rounds" in card and "| `batch_size` | `6` |" in card
    assert "| `rewards.digits` | `weight 1.0` |" in card and not re.search(r"^\| 8 \|", card, re.MULTILINE)
    table = [line for line in card.splitlines() if re.match(r"\| [04] \| ", line)]
    assert len(table) == 2 and str(trained) not in card
    with pytest.raises(UserError, match="has no checkpoint of round 5; there are: 4, 8"):
        export(stored_run(trained), tmp_path / "other", round_index=5)


def test_what_cannot_be_exported_is_one_line_and_writes_nothing(trained, tmp_path):
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "thesis.txt").write_text("kept")
    with pytest.raises(UserError, match="is there already; allowed: a new folder"):
        export(stored_run(trained), tmp_path / "mine")
    assert (tmp_path / "mine" / "thesis.txt").read_text() == "kept"
    with pytest.raises(UserError, match="the run has no adapters"):
        export(stored_run(trained), tmp_path / "out", merge=True)
    for place, said in ((tmp_path / "no", "is no folder"), (tmp_path / "mine", "cannot be read: No such file")):
        with pytest.raises(UserError, match=re.escape(str(place)) + f".* {said}"):
            stored_run(place)
    with pytest.raises(UserError, match="round = -1; allowed: 0 or more"):
        Export(trained, tmp_path / "out", round=-1)
    train(run_of(rounds=4), tmp_path / "studied")
    prune(tmp_path / "studied")
    with pytest.raises(UserError, match="has no weights: a study drops those"):
        export(stored_run(tmp_path / "studied"), tmp_path / "out")
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda config: config.update(level="sim"), "is of no language model's run"),
        (lambda config: config["design"].update(rounds=-3), "is of no language model's run"),
        (lambda config: config["model"].update(more=1), "is of no run of this version: KeyError: 'more'"),
        (lambda config: config["model"]["tiny"].update(width="\x1b[2J"), "is of no run of this version: "),
        (lambda config: config["model"]["tiny"].update(width=32), "differs from"),
        (lambda config: config["design"].update(rounds=5), "differs from"),
        (lambda config: config.pop("lora"), "is of no run of this version: KeyError: 'lora'"),
    ],
)
def test_a_forged_configuration_is_one_line(change, message, trained, tmp_path):
    config = json.loads((trained / "config.json").read_bytes())
    change(config)
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "config.json").write_text(json.dumps(config))
    shutil.copytree(trained / "checkpoints", tmp_path / "run" / "checkpoints")
    with pytest.raises(UserError, match=message) as error:
        export(stored_run(tmp_path / "run"), tmp_path / "out")
    assert "\x1b" not in str(error.value)


def test_a_damaged_checkpoint_is_not_exported(tmp_path):
    train(run_of(rounds=4), tmp_path / "run")
    file = tmp_path / "run" / "checkpoints" / "000004" / WEIGHTS
    weights = load_file(file)
    save_file({name: value + 1 for name, value in weights.items()}, file)
    with pytest.raises(UserError, match=r"damaged: .*does not match its checksum"):
        export(stored_run(tmp_path / "run"), tmp_path / "out")


def test_a_chat_model_keeps_its_template(folder, data, tmp_path):
    run = chat_run(folder, data)
    train(run, tmp_path / "run")
    export(stored_run(tmp_path / "run"), tmp_path / "out")
    tokenizer = AutoTokenizer.from_pretrained(tmp_path / "out", trust_remote_code=False)
    before = AutoTokenizer.from_pretrained(folder, trust_remote_code=False)
    chat = [{"role": "user", "content": "What is 1 + 1 ?"}]
    told = {"add_generation_prompt": True, "return_dict": False}
    assert tokenizer.apply_chat_template(chat, **told) == before.apply_chat_template(chat, **told)
    assert GenerationConfig.from_pretrained(tmp_path / "out").eos_token_id == [2, 3]
    again = replace(run, model=replace(run.model, source=str(tmp_path / "out")))
    assert len(train(again, tmp_path / "again").curve.round) == 3, "it is a base model for the next run"


@pytest.mark.filterwarnings("ignore:`is_gradient_checkpointing`:FutureWarning")  # PEFT asks transformers 5.23 for it
def test_adapters_alone_and_merged_are_the_same_policy(folder, data, tmp_path):
    peft = pytest.importorskip("peft", reason="peft is not installed (pip install '.[lora]' in rftlab's folder)")
    run = replace(chat_run(folder, data), lora=LoRA(4, 8.0, ("q_proj", "up_proj")))
    run = replace(run, optimizer=replace(run.optimizer, learning_rate=0.05))
    train(run, tmp_path / "run", reward=digits)
    stored = stored_run(tmp_path / "run")
    export(stored, tmp_path / "adapter")
    export(stored, tmp_path / "whole", merge=True)
    assert not (tmp_path / "adapter" / "model.safetensors").exists()
    adapted = peft.PeftModel.from_pretrained(loaded(folder), tmp_path / "adapter")
    responses = some([[4, 7, 8], [5, 9]])
    found, merged = logp_of(adapted.merge_and_unload(), responses), logp_of(loaded(tmp_path / "whole"), responses)
    np.testing.assert_allclose(found, merged, atol=1e-5)
    assert np.abs(merged - logp_of(loaded(folder), responses)).max() > 1e-3, "it has learned something"
    card = (tmp_path / "adapter" / "README.md").read_text()
    assert card.startswith('---\nlibrary_name: "peft"') and "| `lora.rank` | `4` |" in card


def test_an_adapter_needs_a_base_that_has_a_place(tmp_path):
    pytest.importorskip("peft", reason="peft is not installed (pip install '.[lora]' in rftlab's folder)")
    train(replace(run_of(rounds=2, eval_every=2), lora=LoRA(2)), tmp_path / "run")
    said = "the base model 'tiny' is made here, where no adapter can name it; allowed: merge"
    with pytest.raises(UserError, match=said):
        export(stored_run(tmp_path / "run"), tmp_path / "out")
    assert export(stored_run(tmp_path / "run"), tmp_path / "out", merge=True) == 2
    assert loaded(tmp_path / "out").config.vocab_size == len(SYMBOLS)


def rows(text):
    return {words[0]: words[1:] for line in text.splitlines() if (words := line.split())}


def test_status_shows_them_and_writes_nothing(results, trained):
    before = sorted(results.rglob("*"))
    runs = rows(shown("status", "--results", results))
    assert runs["whole"] == ["done", "8", "8", "tiny", "mix97", "digits"]
    assert runs["cut"] == ["interrupted", "4", "8", "tiny", "mix97", "digits"] and "notes" not in runs
    with locked(results / "cut", noop):
        assert rows(shown("status", "--results", results))["cut"][0] == "running"
    assert rows(shown("status", "--results", trained))[str(trained)][0] == "done"
    assert sorted(results.rglob("*")) == before


def test_a_damaged_one_is_named(results, tmp_path):
    (tmp_path / "bad").mkdir()
    (tmp_path / "bad" / "config.json").write_text('{"level": "llm", "design": {"rounds": 3}}')
    assert rows(shown("status", "--results", tmp_path))["bad"] == ["damaged"]
    (tmp_path / "bad" / "config.json").write_text("{}")
    assert "is not a results folder of rftlab" in refused("status", "--results", tmp_path)


def test_reports_and_comparisons_take_them_where_they_lie(results, trained, tmp_path):
    text = shown("report", f"train:{trained}", "--results", tmp_path, "--quiet")
    (page,) = tmp_path.rglob("report.html")
    assert str(page) in text.replace("\n", "") and "whole" in page.read_text()
    shown("compare", f"train:{trained}", f"train:{results / 'cut'}", "--results", tmp_path, "--quiet")
    assert len(list(tmp_path.rglob("compare.html"))) == 1
    text = shown("compare", f"train:{results}", f"train:{trained}", "--results", tmp_path, "--quiet")
    assert "2 runs from rftlab train" in text
    said = "notes holds no run of rftlab train; allowed: its folder, or one with several"
    assert said in refused("report", f"train:{results / 'notes'}", "--results", tmp_path)
    text = refused("report", "train:", "--results", tmp_path)
    assert re.search("'train:'; allowed: imported:NAME.*train:FOLDER", text)


def test_a_study_may_begin_where_a_run_lies(trained, tmp_path):
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "config.json").write_bytes((trained / "config.json").read_bytes())
    assert store.open_store(tmp_path) == tmp_path
    (tmp_path / "other").mkdir()
    (tmp_path / "rftlab.json").unlink()
    with pytest.raises(UserError, match="holds other files"):
        store.open_store(tmp_path)
