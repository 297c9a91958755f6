"""`rftlab pilot --model`: a model from a folder on a benchmark, without training; examples in prompts; entropy."""

import os
from dataclasses import replace

import numpy as np
import pytest
import torch

from rftlab import UserError, start_at
from rftlab.llm.engines.rollouts import Draws
from rftlab.llm.models.load import load_data, load_model
from rftlab.llm.policy.policy import Policy
from rftlab.llm.probe import probe, with_examples
from rftlab.llm.probe_config import ProbeConfig
from rftlab.llm.train import engine_for
from rftlab.shared.plumbing.callbacks import noop
from rftlab.studies.cli.forecasting import parse_pilot
from rftlab.studies.forecast.pilot import run as pilot_run
from rftlab.studies.forecast.pilot.headroom import measure_entropy
from tests.support.machine.here import rftlab
from tests.support.trainer.chat_models import chat_run, data, folder, jsonl, with_code  # noqa: F401
from tests.support.trainer.tiny_runs import one_cache, run_of  # noqa: F401

FLAGS = "--test-questions 8 --samples 4 --temperature-questions 6 --model.max-response-length 8"


@pytest.fixture
def here(monkeypatch):
    """The measurement in this process, counted."""
    asked = []

    def work(console, title, quiet, work, *arguments):
        asked.append(title)
        return work(noop, *arguments)

    monkeypatch.setattr(pilot_run, "in_a_process", work)
    return asked


def test_a_folder_is_measured_once_and_again_where_its_weights_change(folder, data, tmp_path, here):
    flags = [*f"--model {folder} --task gsm8k --task.source {data} --results {tmp_path}".split(), *FLAGS.split()]
    told = "--reported", "0.5", "--model.max-prompt-length", "40"
    status, text = rftlab("pilot", *flags, *told)
    assert status == 0 and here == ["base model"], text
    # 8 questions x 4; greedily 6, and 6 with examples
    assert "At most 44 rollouts of up to 8 tokens (test 32, temperatures 6, with examples 6) on cpu" in text
    for part in ("strict, temperature 1", "lenient parser", "greedy, 4 examples", "vote of 4", "pass@4", "entropy of"):
        assert part in text, part
    assert "r of the effective batch" not in text and "grid" not in text
    assert "Runs of instruct models end" in text and "about 0.50 nothing need be learned" in text
    assert "not covered" not in text
    (place,) = (tmp_path / "pilot").iterdir()
    assert place.name.startswith(f"{folder.name}-gsm8k-")
    status, again = rftlab("pilot", *flags, *told)
    assert here == ["base model"] and "has it already" in again
    assert again.split("way to count")[1:] == text.split("way to count")[1:]
    os.utime(folder / "model.safetensors", (1, 1))
    rftlab("pilot", *flags, *told)
    assert here == ["base model"] * 2


def test_what_public_runs_do_not_cover_is_said(folder, tmp_path, here):
    rows = [{"question": f"What is {a} ?", "answer": str(a)} for a in range(10)]
    own = jsonl(tmp_path / "own.jsonl", rows)
    flags = f"--model {folder} --task own --task.source {own} --task.own.truth number --task.own.test-part 0.5"
    status, text = rftlab("pilot", *flags.split(), *FLAGS.split(), "--results", tmp_path / "r", "--reported", "0.9")
    assert status == 0 and "where runs on own end" in text and "Runs of instruct" not in text
    assert "Up to about 0.90 nothing need be learned" in text


def test_code_of_a_model_is_not_run_by_a_pilot(folder, data, tmp_path, here):
    place = with_code(folder, tmp_path / "model", "config.json")
    status, text = rftlab("pilot", "--model", place, "--task.source", data, "--results", tmp_path / "r")
    assert status == 2 and "never run" in text and not (place / "ran").exists()


def test_a_model_of_a_pair_starts_from_its_settings_and_is_not_trained():
    pair = start_at("qwen-math", "llm")
    command = parse_pilot(["--model", pair.model.source, "--task=math"])
    assert (command.task, command.model, command.compute) == (pair.task, pair.model, pair.compute) and command.alone
    assert parse_pilot(["--pair", "tiny-sign97"])._own() is None
    own = parse_pilot(["--model", "tiny", "--task", "mod97"])._own()
    assert (own.task, own.model) == (start_at("tiny-mod97", "llm").task, start_at("tiny-mod97", "llm").model)
    assert parse_pilot(["--pair", "tiny-mix97", "--temperature", "0.5"])._own().temperature == 0.5
    for flags, message in (
        ("--model tiny --task mod97 --designs 256x1-paper_text", "with --model nothing is trained"),
        ("--train-questions 0", "train_questions = 0"),
    ):
        status, text = rftlab("pilot", *flags.split())
        assert status == 2 and message in text


def test_examples_are_solved_training_questions_as_many_as_fit(folder, data):
    run = chat_run(folder, data)
    known, codec = load_data(run, load_model(run)[1]), load_model(run)[1]
    problems, examples = known.test.take([0, 1]), known.train.take([3, 5])
    shown, shots = with_examples(problems, examples, codec, 10**6)
    assert shots == 2
    turns = shown.shown[1]
    assert [turn["role"] for turn in turns] == ["user", "assistant"] * 2 + ["user"]
    assert turns[0] == examples.shown[0][0] and turns[1]["content"] == "#### 6" and turns[-1] == problems.shown[1][0]
    assert [list(ids) for ids in shown.prompts] == codec.encode(shown.shown) and shown.answers == problems.answers
    longest = max(map(len, shown.prompts))
    fewer, shots = with_examples(problems, examples, codec, longest - 1)
    assert shots == 1 and fewer.shown[0][:2] == turns[:2] and len(fewer.shown[0]) == 3
    assert with_examples(problems, examples, codec, 3) == (problems, 0)
    assert with_examples(problems, examples._replace(solutions=()), codec, 10**6) == (problems, 0)
    system = [{"role": "system", "content": "is"}]
    ruled = [each._replace(shown=tuple(system + prompt for prompt in each.shown)) for each in (problems, examples)]
    roles = [turn["role"] for turn in with_examples(*ruled, codec, 10**6)[0].shown[0]]
    assert roles == ["system", *(turn["role"] for turn in turns)]
    text = problems._replace(shown=("a", "b"))
    assert with_examples(text, examples, codec, 10**6) == (text, 0)


def test_entropy_is_that_of_the_policy():
    """The mean of -log pi over sampled tokens against exact entropies at the same places."""
    run = replace(run_of(), temperature=0.8)
    test = probe(run, ProbeConfig(0, 20, 64, temperatures=(), many_questions=0)).test
    known = measure_entropy(test.surprise, test.lengths, run.temperature)
    model, codec = load_model(run)
    prompts = load_data(run, codec).test.prompts
    exact, tokens, policy = 0.0, 0, Policy(model, run.compute, run.temperature)
    draws = (np.arange(20) + 5, np.full(20, 64), Draws(7, 0, 1), run.temperature, 12)
    sampled = engine_for(run, policy, codec).sample(prompts, *draws)
    with torch.no_grad():
        for rows in policy.micro_batches(sampled.responses):
            _, entropy = policy.log_probs(sampled.responses, rows, with_entropy=True)
            exact, tokens = exact + float(entropy.sum()), tokens + len(entropy)
    assert 0 < known.error < 0.05 * known.value
    assert abs(known.value - exact / tokens) < 4 * known.error
    left = [np.delete(test.surprise, i, 0).sum() / np.delete(test.lengths, i, 0).sum() for i in range(20)]
    assert known.error == pytest.approx(np.sqrt(19 / 20 * ((left - np.mean(left)) ** 2).sum()))


def test_no_training_question_means_no_gradients():
    found = probe(run_of(), ProbeConfig(0, 8, 4, temperatures=(0.0,), many_questions=0))
    assert found.train is None and found.raw is None and found.centred is None
    assert found.headroom.greedy.shape == (8, 2) and found.headroom.few_shot.shape == (0, 2)
    with pytest.raises(UserError, match="train_questions"):
        ProbeConfig(train_questions=3)
