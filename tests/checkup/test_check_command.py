"""`rftlab check` on configurations and logs; docs/check.md prints what it prints."""

import json
import pickle
import re
from dataclasses import replace
from html.parser import HTMLParser

import numpy as np
import pytest

from rftlab.studies.analysis.diagnose.alarms import describe_rates
from rftlab.studies.forecast.checkup.changes import MOST, doubled_gain, teaching_share
from rftlab.studies.forecast.checkup.page import describe_time, make_sections
from rftlab.studies.forecast.checkup.subject import Asked, read_subject
from rftlab.studies.readers.run import KnownDesign
from rftlab.studies.readers.store import write_collection
from tests.support.logs.formats import LOGS
from tests.support.logs.planted import after, changed, healthy, log_of
from tests.support.machine.here import refused, shown
from tests.support.web.browser import HOSTILE

TRL = {"per_device_train_batch_size": 4, "gradient_accumulation_steps": 8, "num_generations": 8, "max_steps": 500,
       "learning_rate": 1e-6, "max_completion_length": 512, "model_name_or_path": "Qwen/Qwen3-1.7B"}  # fmt: skip
PRIME = """max_steps = 400
model = { name = "Qwen/Qwen3-4B" }
[orchestrator]
batch_size = 128
rollouts_per_example = 16
[trainer.optim]
lr = 3e-6
[trainer.model.lora]
rank = 16
"""
VERL = "data.train_batch_size: 32\nactor_rollout_ref.rollout.n: 64\nactor_rollout_ref.actor.ppo_mini_batch_size: 8\n"
SCRIPT = "python -m verl.trainer.main_ppo data.train_batch_size=32 actor_rollout_ref.rollout.n=64\n"
PLAIN = "group_size = 8\nrollout_batch_size = 256\nn_grpo_steps = 300\n"
ARGUMENTS = "from trl import GRPOConfig\nargs = GRPOConfig(num_generations=16, per_device_train_batch_size=16)\n"


def written(folder, name, text):
    """A file in a folder."""
    (folder / name).write_text(text if isinstance(text, str) else json.dumps(text))
    return folder / name


def flowing(*arguments):
    """The output as one line."""
    return " ".join(shown("check", *arguments).split())


@pytest.mark.parametrize(
    ("name", "content", "more", "batch"),
    [
        ("train.py", ARGUMENTS, ("--processes", 2), "2 prompts with 16 rollouts for each prompt: 2 x 16 = 32 "),
        ("verl.yaml", VERL, (), "32 prompts with 64 rollouts for each prompt: 32 x 64 = 2,048 responses in all"),
        ("run.sh", SCRIPT, (), "32 prompts with 64 rollouts for each prompt: 32 x 64 = 2,048 responses in all"),
        ("rl.toml", PRIME, (), "8 prompts with 16 rollouts for each prompt: 8 x 16 = 128 responses in all"),
        ("train.py", PLAIN, (), "32 prompts with 8 rollouts for each prompt: 32 x 8 = 256 responses in all"),
        ("grpo.json", TRL, ("--gpus", "8xA100-80"), "32 prompts with 8 rollouts for each prompt: 32 x 8 = 256 resp"),
        ("grpo.json", TRL, ("--gpus", "8xH100", "--processes", 2), "8 prompts with 8 rollouts for each prompt: 8 x 8 "),
        ("grpo.json", TRL, (), "an unknown number of prompts with 8 rollouts for each prompt."),
    ],
)
def test_the_batch_is_in_plain_words(name, content, more, batch, tmp_path):
    path = written(tmp_path, name, content)
    (tmp_path / f"link{path.suffix}").symlink_to(path)
    text = flowing(tmp_path / f"link{path.suffix}", *more)
    assert f"Your batch Each step samples {batch}" in text and "Health" not in text and "Where it ends" not in text
    assert ("processes: 8 is a guess, one for each of --gpus 8xA100-80; --" in text) == ("8xA100-80" in more)
    if content == PLAIN:
        assert read_subject([str(path)], tmp_path, Asked()).planned == 300


def test_adapters_short_runs_and_settings_that_failed_are_named(tmp_path):
    text = flowing(written(tmp_path, "rl.toml", PRIME))
    assert "The learning rate 3e-06 cannot be judged for adapters of 4B: runs like it held at" in text
    assert "Nothing that was measured speaks for a change." in text
    small = TRL | {"model_name_or_path": "Qwen/Qwen2.5-0.5B", "max_steps": 30}
    text = flowing(written(tmp_path, "grpo.json", small), "--processes", 8, "--gpus", "8xH100")
    assert re.search(r"30 steps take \d+ (s|minutes)\.", text)
    hot = TRL | {"learning_rate": 1e-4, "num_iterations": 8, "steps_per_generation": 16, "max_steps": -1}
    text = flowing(written(tmp_path, "grpo.json", hot), "--processes", 4)
    assert "16 updates a step are many: 2 of 6 public runs with more than 4 failed" in text
    assert "The learning rate 0.0001 is dangerous for full weights" in text
    assert "Updates a step 16 -> 4." in text and "Learning rate 0.0001 -> 1e-05." in text


def test_a_model_that_nobody_knows_is_told_by_the_size_in_its_name(tmp_path):
    path = written(tmp_path, "grpo.json", TRL | {"model_name_or_path": "", "learning_rate": 9.78947e-5})
    text = flowing(path, "--processes", 8, "--model", "me/thing-7B", "--gpus", "8xH100")
    assert "learning rate 9.79e-05 " in text and "B: no public run" in text


def test_a_log_tells_of_adapters_as_a_configuration_does(tmp_path):
    """Without them seven billion weights would not fit, and the rate would be judged for all of them."""
    model = "actor_rollout_ref.model.path=Qwen/Qwen2.5-7B actor_rollout_ref.actor.optim.lr=1e-5 "
    lines = "".join(f"step:{i} - actor/grad_norm:0.5 - critic/score/mean:0.5\n" for i in range(1, 4))
    for rank, whose, fits in ((8, "adapters", "it fits"), (0, "full weights", "does not fit without offloading")):
        log = written(
            tmp_path, "run.log", f"{SCRIPT.strip()} {model} actor_rollout_ref.model.lora_rank={rank}\n{lines}"
        )
        text = flowing(log)
        assert f"for {whose} of 7.6B" in text and fits in text
    header = "ModelConfig(model_name_or_path='Qwen/Qwen2.5-7B')\nGRPOConfig(learning_rate=1e-5, num_generations=8,\n"
    lines = "".join(f"{{'loss': 0.1, 'reward': 0.5, 'step': {i}}}\n" for i in range(1, 4))
    for trained, whose in ((5, "adapters"), (100, "full weights")):
        share = f"trainable params: {trained} || all params: 100 || trainable%: {trained}\n"
        text = flowing(written(tmp_path, "trl.log", header + share + lines), "--evidence")
        assert f"for {whose} of 7.6B" in text


@pytest.mark.parametrize(
    ("seconds", "words"),
    [(0.04, "0.04 s"), (1.4, "1 s"), (119, "119 s"), (120, "2 minutes"), (359, "6 minutes"), (360, "0.1 hours"),
     (90_000, "25.0 hours")],
)  # fmt: skip
def test_a_time_has_a_unit_in_which_it_is_not_zero(seconds, words):
    assert describe_time(seconds) == words


def collection(tmp_path, *runs):
    """Runs as `imported:mine`."""
    design = KnownDesign(32, 8, 1, 1e-5, "group_zscore", "grpo, clip 0.2", 0.0, 1.0, 1024, model="Qwen/Qwen2.5-1.5B")
    write_collection(tmp_path / "results", "mine", [replace(run, design=design, name=name) for name, run in runs])
    return "imported:mine", "--results", tmp_path / "results"


def test_of_a_short_log_no_health_and_of_runs_that_differ_no_batch_is_stated(tmp_path):
    file = written(tmp_path, "short.csv", "step,reward,eval_acc,frac_reward_zero_std\n1,0.2,0.3,0.9\n2,0.3,0.4,0.9\n")
    text = flowing(file)
    assert "Whether it is healthy the log does not show" in text
    assert "Healthy" not in text and "90% of the groups" not in text
    runs = [replace(log_of(healthy()), name=str(b), design=KnownDesign(b, 8)) for b in (32, 64)]
    write_collection(tmp_path / "results", "sweep", runs)
    text = flowing("imported:sweep", "--results", tmp_path / "results")
    assert "an unknown number of prompts with 8 rollouts" in text and "runs differ in prompts; one at a time" in text


def test_a_broken_log_is_not_healthy(tmp_path):
    broken = log_of(changed("train", "pass_at_1", after(0.6, 0.1))(healthy()))
    text = flowing(*collection(tmp_path, ("a", broken)))
    assert "Health Not healthy: collapse" in text and "Expected effect: against 'collapse'" in text


def test_a_higher_learning_rate_is_not_named_for_a_run_that_broke(tmp_path):
    """Against a collapse a lower one is."""
    low = KnownDesign(32, 8, 1, 1e-6, model="Qwen/Qwen2.5-1.5B")
    broken = changed("train", "pass_at_1", after(0.6, 0.1))(healthy())
    runs = [replace(log_of(log), design=low, name=name) for name, log in (("broken", broken), ("well", healthy()))]
    write_collection(tmp_path / "results", "mine", runs)
    for name, named in (("broken", False), ("well", True)):
        text = flowing(f"imported:mine#{name}", "--results", tmp_path / "results")
        assert ("Learning rate 1e-06 -> 1e-05." in text) == named and "The learning rate 1e-06 is low" in text


def test_alarms_come_with_their_rates(tmp_path):
    loud = log_of(changed("train", "response_length", after(0.5, 40.0))(healthy()))
    text = flowing(*collection(tmp_path, ("a", loud)))
    rates = describe_rates("alarm: short responses").removeprefix("public runs: ")
    assert f"alarm: short responses: some runs that failed showed this sign. Of public runs it {rates}." in text


def test_two_runs_are_compared(tmp_path):
    better = log_of(changed("test", "pass_at_1", lambda values: values + 0.1)(healthy()))
    text = flowing(*collection(tmp_path, ("a", better), ("b", log_of(healthy(1)))), "--rounds", 400)
    assert re.search(r"a is ahead of b by 0\.\d\d and ends higher with probability 0\.[6-9]\d\.", text)
    assert "a: Healthy" in text and "b: Healthy" in text


def subject_of(tmp_path, *runs, **asked):
    """The subject of a check of runs."""
    name, _, root = collection(tmp_path, *runs)
    return read_subject((name,), root, Asked(**asked))


def test_every_sentence_has_evidence_and_three_changes_are_the_most(tmp_path):
    columns = changed("train", "pass_at_1", after(0.6, 0.1))(healthy())
    columns = changed("train", "zero_signal_fraction", lambda values: values * 0 + 0.9)(columns)
    columns = changed("train", "rollout_probs_diff", lambda values: values + 0.1)(columns)
    sections = make_sections(subject_of(tmp_path, ("a", log_of(columns)), gpus="8xH100"))
    assert list(sections) == ["Your batch", "Unusual", "Health", "Where it ends", "Worth trying", "Unknown"]
    assert [one.text for own in sections.values() for one in own if not one.evidence] == []
    tried = [one.text for one in sections["Worth trying"] if not one.text.startswith("Doubling K")]
    assert len(tried) == MOST and all("Expected effect" in text for text in tried)


def test_evidence_is_one_flag_away(tmp_path):
    file = written(tmp_path, "grpo.json", TRL)
    brief, whole = flowing(file), flowing(file, "--evidence", "--model", "1.7B", "--processes", "2")
    assert "--evidence prints" in brief and "--evidence prints" not in whole
    assert "of the peak in passes" in whole and "{" not in whole
    assert "ShibukiZero/assignment5-alignment" in whole and "ShibukiZero" not in brief
    assert "num_iterations is not stated; the default of TRL" in whole


@pytest.mark.parametrize("kind", LOGS)
def test_every_log_gets_an_answer_with_evidence(kind, tmp_path):
    log = LOGS[kind](0)
    file = written(tmp_path, log.name, log.text)
    sections = make_sections(read_subject((str(file),), tmp_path, Asked(rounds=500)))
    assert {"Your batch", "Health", "Unknown"} <= set(sections)
    assert [one.text for own in sections.values() for one in own if not one.evidence] == []


def page_of(tmp_path, *runs):
    """The page of runs."""
    text = shown("check", *collection(tmp_path, *runs), "--page")
    return tmp_path / "results" / text.splitlines()[-1].split("results/", 1)[1]


def test_a_page_fits_a_phone(browser, tmp_path):
    browser.open(page_of(tmp_path, ("a" * 60, log_of(healthy()))), 390)
    browser.run("document.querySelectorAll('details').forEach((one) => { one.open = true; })")
    browser.sound()


def test_the_page_has_every_sentence_and_obeys_no_name(tmp_path):
    page = page_of(tmp_path, *((text[:60], log_of(healthy())) for text in HOSTILE[:5]))
    kept = json.loads((page.parent / "check.json").read_text())
    words, tags, parser = [], [], HTMLParser()
    parser.handle_data, parser.handle_starttag = words.append, lambda tag, attributes: tags.append(tag)
    parser.feed(page.read_text())
    sentences = [one["text"] for own in kept.values() for one in own]
    assert len(sentences) > 20 and (tags.count("script"), tags.count("details")) == (1, len(sentences))
    assert [text for text in sentences if text not in "".join(words)] == []
    assert len((page.parent / "check.csv").read_text().splitlines()) >= len(sentences)


def test_groups_of_another_size_follow_from_the_measured_share(tmp_path):
    subject = subject_of(tmp_path, ("a", log_of(healthy())))
    same, more = teaching_share(subject, 8, 8), teaching_share(subject, 8, 16)
    assert same == pytest.approx(1 - subject.silence, abs=0.01) and same < more < 1
    gain = doubled_gain(subject)
    assert gain.low < gain.value < 0


def test_no_other_batch_is_named_for_a_run_that_stands_still(tmp_path):
    """The forecast had a gain of 0.01 or more in 36 to 53% of flat runs of 64 questions, and said that it is worth a
    try."""
    for seed in range(5):
        flat = np.random.default_rng(seed).binomial(64, 0.5, 41) / 64
        subject = subject_of(tmp_path / str(seed), ("a", log_of(healthy() | {("test", "pass_at_1"): flat})))
        text = " ".join(sentence.text for sentence in make_sections(subject)["Worth trying"])
        assert "Doubling K at the same cost (16 prompts x 16 rollouts) brings nothing that can be seen" in text
        assert "at the same cost. Expected effect" not in text


def test_an_odd_number_of_prompts_has_no_half_at_the_same_cost(tmp_path):
    path = written(tmp_path, "grpo.json", TRL | {"per_device_train_batch_size": 24, "gradient_accumulation_steps": 1})
    assert "Doubling K at 67% of the cost (1 prompt x 16 rollouts)" in flowing(path, "--processes", 1)


def test_a_log_whose_own_arguments_lack_the_processes_asks_for_them(tmp_path):
    (tmp_path / "training_args.bin").write_bytes(pickle.dumps(TRL))
    history = [{"step": step, "reward": 0.5} for step in (1, 2, 3)]
    path = written(tmp_path, "trainer_state.json", {"log_history": history})
    assert "Prompts a step: --processes N tells" in flowing(path)


def test_processes_are_asked_for_where_the_trainer_counts_by_them(tmp_path):
    config = {"data": {"train_batch_size": "${prompts}"}, "actor_rollout_ref": {"rollout": {"n": 8}}}
    said = flowing(written(tmp_path, "verl.json", config))
    assert "Prompts a step: its configuration tells" in said and "--processes N" not in said


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("a.json", "b.json"), "a.json and b.json are configurations; allowed: one, and logs of its run"),
        (("empty.json",), "or a configuration: verl's config.yaml or command line, TRL's arguments"),
        (("a.json", "--model", "nobody/knows"), "model = 'nobody/knows'; allowed: a folder with a config.json"),
        (("a.json", "--gpus", "8xTPU"), "gpus = '8xTPU'; allowed: COUNTxNAME"),
        (("a.json", "--rounds", "0"), "rounds = 0; allowed: 1"),
    ],
)
def test_bad_input_is_one_line(arguments, said, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for name, content in (("a.json", TRL), ("b.json", TRL), ("empty.json", {"nothing": [1]})):
        written(tmp_path, name, content)
    more = ("--processes", 8) if "--gpus" in arguments else ()
    assert said in refused("check", *arguments, *more)


def test_values_of_a_configuration_that_cannot_be_read_are_named(tmp_path):
    odd = TRL | {"per_device_train_batch_size": -4, "gradient_accumulation_steps": "x", "learning_rate": float("nan")}
    text = flowing(written(tmp_path, "odd.json", odd), "--processes", 8)
    assert "an unknown number of prompts" in text
    assert "Of your configuration: per_device_train_batch_size is '-4', which is no whole number" in text
    assert "gradient_accumulation_steps is 'x'" in text and "learning_rate is 'nan'" in text
