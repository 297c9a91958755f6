"""Make the numbers, state and scratch arrays that kernels take from a `Simulation`. `run` is a
`rftlab.sim.config.Simulation` throughout."""

import math
from dataclasses import replace

import numpy as np

from rftlab.shared.aggregation import shares
from rftlab.shared.config.aggregation import Aggregation
from rftlab.shared.config.surrogate import CustomSurrogate
from rftlab.shared.estimator import Estimator, as_rule
from rftlab.shared.memory import empty_averages, empty_bonus, empty_windows
from rftlab.shared.sampling import MAX
from rftlab.sim.config import DAMAGE_PARTS, check_nuisance, general_options
from rftlab.sim.lanes.random import seed_key
from rftlab.sim.lanes.simd import LANES, aligned_zeros
from rftlab.sim.policy.products import BLOCK
from rftlab.sim.policy.style import WORDS, longest
from rftlab.sim.round.optimizer import optimizer_rule
from rftlab.sim.round.plain import CHUNK
from rftlab.sim.round.ragged import INT, MARK, NUMBER, ROW, TOKEN, Ragged
from rftlab.sim.round.replays import empty_replays
from rftlab.sim.state import GeneralNumbers, GeneralState, LearnerState, RunNumbers, View, Work
from rftlab.sim.world import World


def is_general(run, world: World) -> bool:
    """Whether a run needs any option that only `rftlab.sim.round.general` has."""
    rewards = (
        world.partial_credit,
        world.reward_noise,
        world.format_reward,
        world.false_positive,
        world.false_negative,
    )
    return bool(general_options(run, world.style.tokens)) or max(rewards) > 0


def simulated_estimator(run) -> Estimator:
    """Return the estimator of a run. A mean over prompts with equally many responses becomes one over micro-batches."""
    spec, design = run.design.estimator.aggregation, run.design
    if spec.kind != "prompt_mean" or design.sampling.budget != "equal":
        return design.estimator
    by_parts = Aggregation("micro_batch_token_mean", eps=spec.eps, micro_batch=design.rollouts)
    return replace(design.estimator, aggregation=by_parts)


def make_plan(run, world: World) -> RunNumbers:
    """Return the numbers of a `Simulation` that kernels take."""
    design, aggregation = run.design, simulated_estimator(run).aggregation
    at_once = design.epochs * design.minibatches > 1 or design.estimator.advantage.of_batch
    uneven = design.batch_size * design.rollouts % (aggregation.micro_batch or 1) > 0
    by_style = 0.0 if world.style.tokens > 0 else world.style.by_style
    starts = np.arange(0, world.n_arms, world.n_arms // world.answer_tokens)
    shared = by_style > 0 and aggregation.kind in ("token_mean", "micro_batch_token_mean")
    at_once = at_once or uneven or shared or isinstance(design.estimator.surrogate, CustomSurrogate)
    return RunNumbers(
        key=seed_key(run.seed),
        optimizer=optimizer_rule(run.optimizer),
        n_arms=world.n_arms,
        token_starts=starts if world.answer_tokens > 1 else (0,),
        format_scale=float(world.format_scale),
        nuisance=float(world.nuisance),
        surprise=float(world.surprise),
        interference=float(world.interference),
        forgetting=world.forgetting / world.n_arms,
        sharpening=float(world.sharpening),
        correctness=world.correctness / math.sqrt(world.correctness_parts),
        damage=world.damage / DAMAGE_PARTS,
        n_damaged=DAMAGE_PARTS if world.damage > 0 else 0,
        verbosity=float(world.verbosity),
        verbosity_noise=float(world.verbosity_noise),
        exploration=float(world.exploration),
        n_common=world.n_common,
        long_arms=np.uint32(world.long_arms),
        n_styles=world.style.n_styles,
        length_by_style=by_style,
        rollouts=design.rollouts,
        support=design.support_rollouts,
        epochs=design.epochs,
        minibatches=design.minibatches,
        replays=design.replay_window > 0,
        chunk=design.batch_size if at_once else CHUNK,
    )


def start_state(run, world: World) -> LearnerState:
    """Return the state before training: the base policy, an optimiser at rest, empty windows."""
    number = world.train.base_logits.dtype
    theta, mean, square, grad = (aligned_zeros(world.n_parameters, number) for _ in range(4))
    n_windows = world.train.base_format.shape[0] if run.design.replay_window else 1
    return LearnerState(
        theta,
        mean,
        square,
        grad,
        empty_windows(n_windows, max(1, run.design.replay_window)),
        np.zeros(1, dtype=np.int64),
    )


def make_work(run, world: World) -> Work:
    """Return the scratch arrays of a run."""
    design, number, columns = run.design, world.train.base_logits.dtype, world.train.base_logits.shape[1]
    n = max(design.batch_size, CHUNK) + LANES
    trained, sampled = (
        design.batch_size * design.rollouts,
        design.batch_size * (design.rollouts + design.support_rollouts),
    )
    pool = design.batch_size * (max(design.rollouts, design.replay_window) + design.support_rollouts)
    estimator, rows = simulated_estimator(run), np.arange(trained // design.minibatches + 1)
    rule, share = as_rule(estimator), shares(estimator.aggregation, rows, group=rows[1:])
    return Work(
        rows=np.zeros(n, dtype=np.int64),
        logits=aligned_zeros((n, columns), number),
        probs=aligned_zeros((n, columns), number),
        lse=aligned_zeros(n, number),
        norm=aligned_zeros(n, number),
        format_logp=aligned_zeros((2, n), number),
        formed=aligned_zeros(n, number),
        scores=aligned_zeros((n, columns), number),
        cdf=aligned_zeros(columns, number),
        noise=aligned_zeros((n, LANES), np.float32),
        common_noise=aligned_zeros((n if world.n_common else 0, LANES), np.float32),
        uniform=aligned_zeros((2, max(sampled * world.answer_tokens, CHUNK) + 2 * LANES), np.float32),
        arm=np.zeros(sampled * world.answer_tokens, dtype=np.int64),
        form=np.zeros(sampled, dtype=np.int64),
        reward=np.zeros(sampled),
        logp=np.zeros(trained),
        old_logp=np.zeros(sampled),
        ref_logp=np.zeros(sampled),
        group=np.repeat(np.arange(design.batch_size), design.rollouts),
        starts=np.arange(sampled + 1),
        pool=np.zeros(pool),
        pool_starts=np.zeros(design.batch_size + 1, dtype=np.int64),
        advantage=np.zeros(trained),
        share=share,
        kl_share=rule.kl.in_loss * share,
        weight=np.zeros(trained),
    )


def run_choices(run, world: World) -> GeneralNumbers:
    """Return the numbers of a run that only the general round reads."""
    check_nuisance(world.surprise, world.style.tokens)
    design = run.design
    sampling, advantage, by_difficulty = (
        design.sampling,
        design.estimator.advantage,
        design.sampling.budget == "difficulty",
    )
    return GeneralNumbers(
        style=world.style,
        tries=sampling.tries,
        keep=sampling.keep,
        by_difficulty=by_difficulty,
        draws=design.rollouts * (MAX if by_difficulty else 1) + design.support_rollouts,
        lag=run.sampler.lag,
        every=run.sampler.every,
        noise=float(run.sampler.noise),
        averages=by_difficulty or advantage.baseline == "moving_average",
        decay=float(advantage.decay),
        critic_learning_rate=float(run.critic_learning_rate),
        partial_credit=float(world.partial_credit),
        reward_noise=float(world.reward_noise),
        format_reward=float(world.format_reward),
        several=world.format_reward > 0 or advantage.combine == "advantages",
        false_positive=float(world.false_positive),
        false_negative=float(world.false_negative),
    )


def start_memory(run, world: World) -> GeneralState:
    """Return the general round's state before training."""
    n, d = world.train.base_format.shape[0], world.train.features.shape[1]
    history = np.zeros((run.sampler.lag + run.sampler.every, world.n_parameters), dtype=world.train.base_logits.dtype)
    estimator = run.design.estimator
    bonus = empty_bonus(estimator.entropy, estimator.entropy_target)
    replays = empty_replays(n, run.design.sampling.replayed, world.answer_tokens, 1 + longest(world.style))
    critic, spent = np.zeros(d + 1 if d else n), np.zeros(3, dtype=np.int64)
    return GeneralState(history, empty_averages(n), critic, spent, bonus, replays)


def policy_view(work: Work) -> View:
    """Return scratch arrays for another policy's outputs on a batch."""
    alike = {
        name: aligned_zeros(getattr(work, name).shape, getattr(work, name).dtype)
        for name in View._fields
        if name in Work._fields
    }
    return View(**alike, base_scale=np.ones(1, dtype=work.logits.dtype), common=np.zeros(4))


def make_ragged(run, world: World) -> Ragged:
    """Return scratch arrays for the responses and tokens of a round."""
    design = run.design
    again, most = design.sampling.tries > 1, MAX if design.sampling.budget == "difficulty" else 1
    rows = design.batch_size * (2 if again else 1)
    responses = design.batch_size * (
        design.rollouts + design.sampling.replayed + design.support_rollouts + (design.rollouts * most if again else 0)
    )
    tokens = responses * (1 + longest(world.style))
    draws = design.batch_size * run_choices(run, world).draws
    number = world.train.base_logits.dtype
    return Ragged(
        rows=np.zeros((len(ROW), rows + 1), dtype=np.int64),
        ints=np.zeros((len(INT), responses + 1), dtype=np.int64),
        numbers=np.zeros((len(NUMBER), responses)),
        arms=np.zeros(responses * world.answer_tokens, dtype=np.int64),
        marks=np.zeros((len(MARK), tokens), dtype=np.int64),
        tokens=np.zeros((len(TOKEN), tokens)),
        difficulty=np.zeros(rows),
        pool=np.zeros(
            design.batch_size
            * (max(design.rollouts * MAX + design.sampling.replayed, design.replay_window) + design.support_rollouts)
        ),
        uniform=np.zeros((2, draws * world.answer_tokens + 2 * LANES), dtype=np.float32),
        lengths=np.zeros((2, draws + 2 * LANES), dtype=np.float32),
        keys=np.zeros((2, tokens + 2 * LANES), dtype=np.float32),
        words=np.zeros((2, WORDS), dtype=np.uint32),
        style_score=np.zeros(LANES),
        noise=aligned_zeros((rows + BLOCK, LANES), np.float32),
        common_noise=aligned_zeros((rows + BLOCK if world.n_common else 0, LANES), np.float32),
        cdf=aligned_zeros(world.train.base_logits.shape[1], number),
        scores=aligned_zeros((rows + BLOCK, world.train.base_logits.shape[1]), number),
    )
