"""Measure a pilot: responses of the base model to many questions, and the variation of gradients between questions and
between responses, for the base model and for one that was trained for a while.

Gradients are those of the trainer (`rftlab.llm.training.update.accumulate`), each of one question's responses. A
question's responses form two halves of n, two independent groups. Their difference shows the noise of sampling, and
their mean the gradient of the question. Gradients are kept only as sums over blocks of questions: BLOCKS vectors as
long as the model, in the machine's memory.
"""

import time
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch

from rftlab.llm.config import LLMRun
from rftlab.llm.engines.rollouts import Draws, Engine
from rftlab.llm.export import trained_model
from rftlab.llm.models.load import Problems, load_data, load_model
from rftlab.llm.policy.packing import Responses
from rftlab.llm.policy.policy import Policy
from rftlab.llm.policy.tensors import WEIGHTS
from rftlab.llm.probe_config import BLOCKS, GradientProducts, ProbeConfig
from rftlab.llm.random import PROBE, subset
from rftlab.llm.rewards.math_pool import MathPool
from rftlab.llm.rewards.verify import NONE, answers_found, well_formed
from rftlab.llm.stored import find_checkpoint, stored_run
from rftlab.llm.tasks.codec import Codec
from rftlab.llm.tasks.task import Prompt
from rftlab.llm.train import engine_for, torch_threads
from rftlab.llm.training.evaluate import UNSEEN
from rftlab.llm.training.samples import Judge, Samples, joined
from rftlab.llm.training.update import accumulate
from rftlab.shared.config.advantage import Advantage
from rftlab.shared.config.surrogate import Reinforce
from rftlab.shared.estimator import Estimator
from rftlab.shared.plumbing.callbacks import noop
from rftlab.shared.plumbing.errors import check
from rftlab.shared.prepare import prepare

RAW = Estimator(Advantage("none"), Reinforce())
"""Estimator with the raw reward: a response's gradient is r grad log pi, summed over its tokens."""
CENTRED = Estimator(Advantage("leave_one_out"), Reinforce())
"""Estimator with each reward minus the mean of the others of its group: centred rewards times n / (n - 1), so that it
is unbiased."""
AT_ONCE = 256
"""Number of responses that are sampled between two updates of a progress bar."""


class SplitAnswers(NamedTuple):
    """m responses to each of n questions; arrays (n, m)."""

    available: int
    """Number of questions in the split."""
    strict: np.ndarray
    flexible: np.ndarray
    well_formed: np.ndarray
    """Whether the response has the required format."""
    finished: np.ndarray
    """Whether the response ended by itself."""
    lengths: np.ndarray
    answers: np.ndarray
    """Number of the answer that the strict rule finds, counted within a question from 0; -1 where it finds none."""
    surprise: np.ndarray
    """-log pi of each response, summed over its tokens; its expectation is the entropy of the response's tokens."""
    seconds: float


class HeadroomAnswers(NamedTuple):
    """Responses of the base model to some of the unseen questions at other temperatures, and in many tries."""

    questions: np.ndarray
    """(q,) indices of the test questions that were asked at other temperatures."""
    right: dict[float, np.ndarray]
    """By temperature, (q, responses) with 1 where right and in the format."""
    many_questions: np.ndarray
    """(p,) indices of the test questions that got many responses, at the temperature of training."""
    many: np.ndarray
    """(p, M) 1 where right and in the format."""
    many_answers: np.ndarray
    """(p, M) numbers of answers, as `SplitAnswers.answers`."""
    greedy: np.ndarray
    """(q, 2) whether the greedy response is right, strictly and flexibly; (0, 2) where none was sampled."""
    few_shot: np.ndarray
    """(q, 2) whether the greedy response is right with examples in the prompt; (0, 2) where the task has no examples,
    or none fits."""
    shots: int
    """Number of examples in these prompts."""
    tokens: int
    """Tokens that were sampled for these measurements alone."""
    rollouts: int
    seconds: float


class Probed(NamedTuple):
    """All measurements of a probe; None for parts that need training questions where none was asked."""

    train: SplitAnswers | None
    test: SplitAnswers
    raw: GradientProducts | None
    centred: GradientProducts | None
    headroom: HeadroomAnswers
    seconds: float
    """Seconds of computing the gradients."""


class ProbedGradients(NamedTuple):
    """Gradients of a trained policy, and the costs of their responses."""

    raw: GradientProducts
    centred: GradientProducts
    rollouts: int
    tokens: int
    seconds: float


def probe(
    run: LLMRun,
    config: ProbeConfig,
    progress: Callable[[int, int], None] = noop,
    pretraining: Callable[[int, float], None] = noop,
    remark: Callable[[str], None] = noop,
) -> Probed:
    """Measure the base model of a run, with the run's engine, temperature and seed. Equal arguments give equal numbers,
    except for seconds.

    progress: called with the questions done and their total, which counts answers first, and then each estimator;
    pretraining, remark: as for `rftlab.llm.models.tiny.pretrained`.
    Raises UserError for a model or data that cannot be used.
    """
    with torch_threads(run), MathPool() as pool:
        model, codec = load_model(run, pretraining, remark)
        policy, data = Policy(model, run.compute, run.temperature), load_data(run, codec)
        check(
            data.verifier != NONE,
            "the data have no true answers (task.own.truth_column); allowed: data with some, which a pilot counts",
        )
        engine, judge = engine_for(run, policy, codec), Judge(data.verifier, codec, pool)
        parts = {"train": (data.train, config.train_questions, 0), "test": (data.test, config.test_questions, UNSEEN)}
        chosen = {name: subset(len(split.answers), size) for name, (split, size, _) in parts.items()}
        n = len(chosen["train"])
        check(
            config.train_questions == 0 or n >= 2 * BLOCKS,
            f"the training split has {n} questions; allowed: {2 * BLOCKS} or more, for errors of the gradients' parts",
        )
        at, many = headroom_questions(config, len(chosen["test"]))
        room = getattr(model.config, "max_position_embeddings", None) if run.compute.engine == "hf" else None
        longest = room - run.model.max_response_length if room else run.model.max_prompt_length
        examples = data.train.take(subset(len(data.train.answers), min(config.shots, len(data.train.answers))))
        shown, shots = with_examples(data.test.take(chosen["test"][at]), examples, codec, longest)
        turns = len(config.others(run.temperature)) + (shots > 0)
        step = _counter(progress, 3 * n + len(chosen["test"]) + turns * len(at) + len(many))
        samples, answers = {}, {}
        for name, (split, _, shift) in parts.items():
            asker = _Asker(run, engine, judge, split, shift, step)
            if len(chosen[name]):
                samples[name], answers[name] = _answers(asker, chosen[name], config.samples)
        own = samples["test"].texts
        headroom = _headroom(asker, config, (at, many), chosen["test"], own, answers["test"], (shown, shots))
        engine.rest()
        began = time.perf_counter()
        raw, centred = _both_products(policy, samples["train"], step) if n else (None, None)
    return Probed(answers.get("train"), answers["test"], raw, centred, headroom, time.perf_counter() - began)


def probe_trained(
    run: LLMRun,
    folder: Path,
    config: ProbeConfig,
    progress: Callable[[int, int], None] = noop,
    remark: Callable[[str], None] = noop,
) -> ProbedGradients:
    """Measure gradients of the model that a run left in a folder, on the training questions of `probe`.

    Raises UserError where the folder has no weights.
    """
    began = time.perf_counter()
    with torch_threads(run), MathPool() as pool:
        model, codec = trained_model(run, find_checkpoint(stored_run(folder), None, (WEIGHTS,)), remark)
        policy, data = Policy(model, run.compute, run.temperature), load_data(run, codec)
        engine, judge = engine_for(run, policy, codec), Judge(data.verifier, codec, pool)
        chosen = subset(len(data.train.answers), config.train_questions)
        step = _counter(progress, 3 * len(chosen))
        asker = _Asker(run, engine, judge, data.train, 0, step)
        samples = asker.responses(chosen, config.samples, run.temperature, 0)
        engine.rest()
        raw, centred = _both_products(policy, samples, step)
    lengths = samples.rollouts.responses.lengths
    return ProbedGradients(raw, centred, len(lengths), int(lengths.sum()), time.perf_counter() - began)


def _counter(tell: Callable[[int, int], None], total: int) -> Callable[[int], None]:
    """Return a function that adds to the count done of a total, for a progress bar."""
    done = 0

    def step(more: int) -> None:
        nonlocal done
        done += more
        tell(done, total)

    return step


class _Asker(NamedTuple):
    """Sampler of answers to the questions of a split."""

    run: LLMRun
    engine: Engine
    judge: Judge
    split: Problems
    shift: int
    """Offset that is added to the questions' numbers, which key the random numbers."""
    step: Callable[[int], None]

    def responses(self, chosen_B: np.ndarray, m: int, temperature: float, turn: int) -> Samples:
        """Return m scored responses to each of some questions. Turns differ in their random numbers."""
        parts, problems, draws = [], self.split.take(chosen_B), Draws(self.run.seed, PROBE, turn)
        questions = max(1, AT_ONCE // m)
        for first in range(0, len(chosen_B), questions):
            rows_b = np.arange(first, min(first + questions, len(chosen_B)))
            few, counts_b = problems.take(rows_b), np.full(len(rows_b), m)
            rollouts = self.engine.sample(
                few.prompts,
                chosen_B[rows_b] + self.shift,
                counts_b,
                draws,
                temperature,
                self.run.model.max_response_length,
                self.judge.early(few.answers),
            )
            parts.append(self.judge.scored(rollouts, rows_b, few.answers)[0])
            self.step(len(rows_b))
        samples: Samples = parts[0]
        for part in parts[1:]:
            samples = joined(samples, part)
        return samples


def _answers(asker: _Asker, chosen_B: np.ndarray, m: int) -> tuple[Samples, SplitAnswers]:
    """Return scored responses to some problems of a split, and the arrays of them that are kept."""
    began = time.perf_counter()
    samples = asker.responses(chosen_B, m, asker.run.temperature, 0)
    verifier, rollouts, lengths = asker.judge.verifier, samples.rollouts, samples.rollouts.responses.lengths
    row_T = np.repeat(np.arange(len(lengths)), lengths)
    return samples, SplitAnswers(
        available=len(asker.split.answers),
        strict=samples.strict.reshape(-1, m),
        flexible=samples.flexible.reshape(-1, m),
        well_formed=well_formed(verifier, samples.texts).reshape(-1, m),
        finished=rollouts.finished.reshape(-1, m),
        lengths=lengths.reshape(-1, m),
        answers=number_answers(verifier, np.array(samples.texts, dtype=object).reshape(-1, m)),
        surprise=-np.bincount(row_T, weights=rollouts.logp, minlength=len(lengths)).reshape(-1, m),
        seconds=time.perf_counter() - began,
    )


def number_answers(verifier: str, texts: np.ndarray) -> np.ndarray:
    """Return the number of the answer that the strict rule finds in each response (n, m), numbered within a question in
    order of appearance; -1 where it finds none."""
    ids = np.empty(texts.shape, dtype=np.int64)
    for row, own in enumerate(texts):
        numbers: dict[str | None, int] = {None: -1}
        for i, answer in enumerate(answers_found(verifier, list(own))):
            ids[row, i] = numbers.setdefault(answer, len(numbers) - 1)
    return ids


def headroom_questions(config: ProbeConfig, n_test: int) -> list[np.ndarray]:
    """Return the test questions that are answered at other temperatures too, and those that get many responses, as
    positions among `n_test` answered ones."""
    beyond = config.many_questions if config.many_samples > config.samples else 0
    return [subset(n_test, min(n_test, size)) for size in (config.temperature_questions, beyond)]


def _headroom(
    asker: _Asker,
    config: ProbeConfig,
    places: tuple[np.ndarray, np.ndarray],
    chosen: np.ndarray,
    texts: list[str],
    given: SplitAnswers,
    examples: tuple[Problems, int],
) -> HeadroomAnswers:
    """Sample the responses beyond those that every question gets. places: result of `headroom_questions` among the
    chosen test questions. given, texts: the responses to these at the temperature of training. examples: the questions
    that are answered at other temperatures, with examples before them, and the number of examples."""
    began, spent, training = time.perf_counter(), [], asker.run.temperature
    (at, many_at), (shown, shots) = places, examples
    greedy = few_shot = np.empty((0, 2))
    right = {training: given.strict[at]} if training in config.temperatures else {}
    for turn, temperature in enumerate(config.others(training)):
        m = 1 if temperature == 0 else config.temperature_samples
        answered = asker.responses(chosen[at], m, temperature, 2 + turn)
        right[temperature] = answered.strict.reshape(-1, m)
        greedy = greedy if temperature else np.stack([answered.strict, answered.flexible], axis=1)
        spent.append(answered.rollouts.responses.lengths)
    if shots:
        answered = asker._replace(split=shown).responses(np.arange(len(at)), 1, 0.0, 0)
        few_shot = np.stack([answered.strict, answered.flexible], axis=1)
        spent.append(answered.rollouts.responses.lengths)
    many, answers = np.empty((0, 0)), np.empty((0, 0), dtype=np.int64)
    if len(many_at):
        more = config.many_samples - config.samples
        answered = asker.responses(chosen[many_at], more, training, 1)
        spent.append(answered.rollouts.responses.lengths)
        before = np.array(texts, dtype=object).reshape(given.strict.shape)[many_at]
        whole = np.hstack([before, np.array(answered.texts, dtype=object).reshape(-1, more)])
        many = np.hstack([given.strict[many_at], answered.strict.reshape(-1, more)])
        answers = number_answers(asker.judge.verifier, whole)
    lengths = np.concatenate([*spent, np.empty(0, dtype=np.int64)])
    ordered = {value: right[value] for value in config.temperatures}
    cost = int(lengths.sum()), len(lengths), time.perf_counter() - began
    return HeadroomAnswers(at, ordered, many_at, many, answers, greedy, few_shot, shots, *cost)


def with_examples(problems: Problems, examples: Problems, codec: Codec, longest: int) -> tuple[Problems, int]:
    """Return chat problems with solved examples as earlier turns, as many as fit into `longest` tokens for all of them,
    and their number; the problems themselves and 0 where none fits, or prompts are text. System messages stay in front,
    once."""
    pairs = zip(examples.shown, examples.solutions, strict=False)
    usable = [(prompt, solution) for prompt, solution in pairs if solution and not isinstance(prompt, str)]
    chats = [prompt for prompt in problems.shown if not isinstance(prompt, str)]
    for shots in range(len(usable) if len(chats) == len(problems.shown) else 0, 0, -1):
        turns: list[dict[str, str]] = []
        for prompt, solution in usable[:shots]:
            turns += [turn for turn in prompt if turn["role"] != "system"]
            turns.append({"role": "assistant", "content": solution})
        whole: list[Prompt] = []
        for prompt in chats:
            first = sum(turn["role"] == "system" for turn in prompt[:1])
            whole.append([*prompt[:first], *turns, *prompt[first:]])
        ids = codec.encode(whole)
        if max(map(len, ids)) <= longest:
            return problems._replace(prompts=tuple(map(tuple, ids)), shown=tuple(whole)), shots
    return problems, 0


def _both_products(policy: Policy, samples: Samples, step: Callable[[int], None]) -> list[GradientProducts]:
    """Return `products` of raw and of centred rewards."""
    return [products(policy, one, samples.rollouts.responses, samples.strict, step) for one in (RAW, CENTRED)]


def products(
    policy: Policy, estimator: Estimator, responses: Responses, rewards: np.ndarray, step: Callable[[int], None] = noop
) -> GradientProducts:
    """Return products of the gradients of G questions' responses, question by question; rewards (R,), with the same
    even number of responses to each.

    step: called after every question.
    """
    n_questions, parameters = len(responses.prompts), [parameter for _, parameter in policy.named_parameters()]
    block_G = np.arange(n_questions) * BLOCKS // n_questions
    sums = [
        torch.zeros(sum(parameter.numel() for parameter in parameters), dtype=parameters[0].dtype)
        for _ in range(BLOCKS)
    ]
    squares_G, differences_G = np.zeros(n_questions), np.zeros(n_questions)
    for g in range(n_questions):
        rows_K = np.flatnonzero(responses.group == g)
        first, second = (
            gradient(policy, estimator, responses.take(half), rewards[half]) for half in (rows_K[0::2], rows_K[1::2])
        )
        mean = (first + second) / 2
        squares_G[g], differences_G[g] = _square(mean), _square(first - second)
        sums[block_G[g]] += mean.cpu()
        step(1)
    gram = np.array([[float(a.double() @ b.double()) for a in sums] for b in sums])
    return GradientProducts(len(rows_K) // 2, block_G, gram, squares_G, differences_G)


def gradient(policy: Policy, estimator: Estimator, responses: Responses, rewards: np.ndarray) -> torch.Tensor:
    """Return the gradient of J over all trained parameters for one group of responses, as the trainer computes it on
    policy."""
    parameters = [parameter for _, parameter in policy.named_parameters()]
    none = np.zeros(len(responses.tokens))
    batch = prepare(estimator, rewards, np.zeros(len(rewards), dtype=np.int64), responses.starts, none)
    if not batch.advantage.any():  # the gradient is 0 without a pass of the model
        return torch.cat([torch.zeros_like(parameter).flatten() for parameter in parameters])
    accumulate(policy, estimator, batch, responses, on_policy=True)
    joined = torch.cat(
        [
            (-parameter.grad if parameter.grad is not None else torch.zeros_like(parameter)).flatten()
            for parameter in parameters
        ]
    )
    for parameter in parameters:
        parameter.grad = None
    return joined


def _square(vector: torch.Tensor) -> float:
    return float(torch.linalg.vector_norm(vector, dtype=torch.float64)) ** 2
