"""Train a round in numbered sections, from prompts to new weights.

The end of an array's name gives its axis: _T tokens, _R responses, _G groups (a prompt's responses), _K rollouts of a
prompt. A small letter stands for a part of them, such as the responses that are trained on.
"""

import math
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from rftlab.llm.config import LLMRun
from rftlab.llm.engines.rollouts import Draws, Engine
from rftlab.llm.meter import Meter
from rftlab.llm.models.load import Data
from rftlab.llm.policy.packing import Responses, token_indices
from rftlab.llm.policy.policy import Policy
from rftlab.llm.random import MASKING, ROLLOUT, batch_rows, uniforms
from rftlab.llm.rewards.call import RewardCaller
from rftlab.llm.rewards.math_pool import Checks, MathPool
from rftlab.llm.tasks.codec import Codec
from rftlab.llm.training.samples import Judge, Replays, Samples, baseline_sets, with_signal
from rftlab.llm.training.update import accumulate, check_mismatch, make_optimizer, rows_between, step
from rftlab.shared.aggregation import row_count
from rftlab.shared.config.mask import ClipCov, TopEntropy
from rftlab.shared.memory import (
    Windows,
    add_into,
    difficulty_within,
    empty_averages,
    empty_bonus,
    empty_windows,
    move_bonus,
    push,
    read_averages,
)
from rftlab.shared.objective import apply_mask
from rftlab.shared.prepare import Batch, batch_from_advantages, prepare, shaped_rewards
from rftlab.shared.sampling import allocate


@dataclass
class TrainerState:
    """Everything that a run changes besides the weights and the optimiser; a checkpoint holds it."""

    windows: Windows | None
    averages: np.ndarray | None
    bonus: np.ndarray | None
    """(2,) state of an entropy bonus with a target (`rftlab.shared.memory.empty_bonus`)."""
    replays: Replays | None
    round: int = 0
    """Number of rounds done."""
    position: int = 0
    """Number of batches of prompts taken from the order so far, more than rounds where groups are replaced."""
    updates: int = 0
    rollouts: int = 0
    """Number of responses sampled so far, including support and greedy ones."""
    tokens: int = 0
    """Number of tokens of these responses."""
    lowest: float = 0.0
    highest: float = 1.0
    """Range of the rewards so far, at least 0 to 1, from which difficulty is computed."""
    totals: dict[str, float] = field(default_factory=dict)
    """Sums since the last evaluation."""

    def add(self, **amounts: float) -> None:
        """Add amounts to the totals."""
        for name, amount in amounts.items():
            self.totals[name] = self.totals.get(name, 0.0) + float(amount)


class Round(NamedTuple):
    """Record of a round."""

    number: int
    """Number of the round, from 0."""
    samples: Samples
    rewards: np.ndarray
    """(R,) rewards after penalties."""
    advantages: np.ndarray
    """(R,) advantage of the first token of a response, and of all tokens without a discount; nan for support
    rollouts."""
    others: tuple[tuple[str, Samples], ...]
    """Responses that were sampled and scored but are no part of the update, as pairs of role and samples. The role is
    dropped (zero-variance groups that were replaced, or surplus groups) or greedy (for a baseline)."""
    diverged: bool
    """Whether weights or a gradient were not finite, which ended the round early."""


class Trainer:
    """Policy, reference, engine and data of a run, with its state."""

    def __init__(
        self,
        run: LLMRun,
        policy: Policy,
        engine: Engine,
        codec: Codec,
        data: Data,
        pool: MathPool,
        rewards: RewardCaller | None = None,
    ):
        """Set up the trainer; policy: the base model, a copy of which becomes the reference where the estimator needs
        one. rewards: a user's functions, in place of the task's strict reward."""
        self.run, self.policy, self.engine, self.data = run, policy, engine, data
        self.judge = Judge(data.verifier, codec, pool, rewards)
        self.reference = policy.reference() if run.needs_reference else None
        self.base = policy.base_checksum() if run.needs_reference or run.lora.rank else None
        """Checksum of the base model, where it is still needed after the first round: as the reference, or under
        adapters."""
        self.optimizer = make_optimizer(policy, run.optimizer)
        self.meter = Meter(run.compute.device)
        n_train, estimator = len(data.train.answers), run.design.estimator
        self.state = TrainerState(
            windows=empty_windows(n_train, run.design.replay_window) if run.design.replay_window else None,
            averages=empty_averages(n_train) if run.needs_averages else None,
            bonus=empty_bonus(estimator.entropy, estimator.entropy_target) if estimator.entropy_target else None,
            replays=Replays(run.design.sampling.replayed) if run.design.sampling.replayed else None,
        )

    def next_contexts(self) -> np.ndarray:
        """Return the numbers of the next prompts: in the order of the epoch, reshuffled for each epoch, without its
        last partial batch."""
        return batch_rows(len(self.data.train.answers), self.run.design.batch_size, self.run.seed, self.state.position)

    def round(self) -> Round:
        """Train for a round. Raises UserError where sampler and trainer disagree."""
        run, state, estimator, index = self.run, self.state, self.run.design.estimator, self.state.round

        # 1 prompts, 2 rollouts, 3 strict and flexible scores
        samples, dropped = self._sample()
        past_T = None
        if state.replays is not None:
            samples, past_T = state.replays.join(samples)
        responses, counted_r = samples.rollouts.responses, np.flatnonzero(samples.trained)
        new_r = samples.new
        whole_r = samples.rollouts.finished[counted_r] | (not run.mask_truncated)
        rows_r = counted_r[whole_r]
        tokens_t = token_indices(responses.starts, rows_r)
        trained, sampler_logp_t = responses.take(rows_r), samples.rollouts.logp[tokens_t]

        # 4 old and reference log-probabilities; on policy the update computes the old ones, and until then the
        # sampler's stand in for them
        with self.meter.phase("log_probs"):
            old_T, ref_T, squares_T = self._log_probs(samples, rows_r, tokens_t, past_T)

        # 5 baseline sets: trained rewards, support rollouts, replay windows; or a baseline from elsewhere
        rewards_R = shaped_rewards(estimator, samples.reward, responses.starts, old_T, ref_T)
        anchor_t = None if ref_T is None else ref_T[tokens_t]
        steps_t = None if samples.steps is None else samples.steps[tokens_t]
        columns = (samples.outcome[rows_r], trained.group, trained.starts, old_T[tokens_t], anchor_t)
        given_r, greedy = self._baseline(samples, rows_r)
        # A moving average excludes this round's rewards and a window includes them, so the average is read before this.
        self._remember(samples, rewards_R, new_r)
        if state.replays is not None:
            state.replays.push(samples, old_T)
        pool, kept_r = baseline_sets(run.design, samples, rewards_R, state.windows)
        parts = samples.several

        # 6 prepare: advantages and shares, once for the round
        corrected_t = sampler_logp_t if estimator.correction.kind != "none" else None
        batch = prepare(
            estimator,
            *columns,
            pool=pool,
            baseline=given_r,
            squares=None if squares_T is None else squares_T[tokens_t],
            token_rewards=steps_t,
            several=None if parts is None else (parts[0][:, rows_r], parts[1]),
            sampler_logp=corrected_t,
            n_rows=row_count(estimator.aggregation, responses.group[counted_r]) if run.mask_truncated else None,
        )
        batch = batch._replace(advantage=np.where(kept_r[whole_r][batch.row], batch.advantage, 0.0))

        # 7 updates, while engine and reference rest
        self.engine.rest()
        if self.reference is not None:
            self.reference.rest()
        with self.meter.phase("update"):
            start_logp_t, diverged = self._update(
                trained, batch, old_T[tokens_t], anchor_t, corrected_t, responses.group[counted_r]
            )

        # 8 metrics
        advantages_R = np.full(len(responses.group), np.nan)
        advantages_R[rows_r] = batch.advantage[trained.starts[:-1]]
        silent_G = (
            np.bincount(trained.group[batch.row], weights=batch.advantage != 0, minlength=len(samples.contexts)) == 0
        )
        state.add(
            reward=rewards_R[new_r].sum(),
            strict=samples.strict[new_r].sum(),
            flexible=samples.flexible[new_r].sum(),
            trained=len(new_r),
        )
        if samples.own is not None:
            state.add(**{f"reward {name}": own_R[new_r].sum() for name, own_R in samples.own.by_name.items()})
        state.add(
            silent=silent_G.sum(),
            contexts=len(silent_G),
            finished=samples.rollouts.finished[new_r].sum(),
            length=responses.lengths[new_r].sum(),
            rounds=1,
        )

        # 9 mismatch: the round was on policy when it began; then sync
        if not diverged:
            state.add(mismatch=check_mismatch(sampler_logp_t, start_logp_t, run.threshold, index, run.truncation))
            self.engine.sync(self.policy)
            state.round += 1
        return Round(index, samples, rewards_R, advantages_R, (*dropped, *greedy), diverged)

    def _sample(self) -> tuple[Samples, list[tuple[str, Samples]]]:
        """Return one batch of prompts with its scored responses; with several tries, the groups that have a signal, and
        the dropped groups of each try."""
        wanted, tries = self.run.design.batch_size, self.run.design.sampling.tries
        if tries == 1:
            return self._try(), []
        kept, dropped = with_signal(None, self._try(), wanted, is_last=False)
        left = [("dropped", dropped)]
        for attempt in range(2, tries + 1):
            if len(kept.contexts) == wanted:
                break
            kept, dropped = with_signal(kept, self._try(), wanted, is_last=attempt == tries)
            left.append(("dropped", dropped))
        return kept, left

    def _try(self) -> Samples:
        """Sample and score the next batch of prompts."""
        run, state, contexts_G = self.run, self.state, self.next_contexts()
        state.position += 1
        counts_G = np.full(len(contexts_G), run.design.rollouts)
        if run.design.sampling.budget == "difficulty":
            sums, low, high = state.averages, state.lowest, state.highest
            places = [0.5 if sums is None else difficulty_within(sums, c, low, high) for c in contexts_G]
            counts_G = allocate(np.array(places), run.design.rollouts)
        return self._scored(
            contexts_G, counts_G + run.design.support_rollouts, run.temperature, run.design.support_rollouts
        )

    def _scored(self, contexts_G: np.ndarray, counts_G: np.ndarray, temperature: float, support: int) -> Samples:
        """Sample and score responses to prompts, and add them to the counts."""
        run, state = self.run, self.state
        # The random numbers are keyed by the batch instead of the round, because a prompt may occur twice in a round.
        draws = Draws(run.seed, ROLLOUT, state.position - 1)
        with self.meter.phase("sample"):
            problems = self.data.train.take(contexts_G)
            rollouts = self.engine.sample(
                problems.prompts,
                contexts_G,
                counts_G,
                draws,
                temperature,
                run.model.max_response_length,
                self.judge.early(problems.answers),
                run.truncation,
            )
        with self.meter.phase("score"):
            place = f"round {state.round + 1}"
            samples, checks = self.judge.scored(
                rollouts, contexts_G, problems.answers, support, problems=problems, place=place
            )
        if samples.own is not None:
            state.lowest = min(state.lowest, float(samples.reward.min(initial=0)))
            state.highest = max(state.highest, float(samples.reward.max(initial=1)))
        state.rollouts += len(samples.texts)
        state.tokens += len(rollouts.logp)
        self.count_checks(checks)
        return samples

    def count_checks(self, checks: Checks) -> None:
        """Add the counts of math-verify to the totals."""
        self.state.add(**{f"checks_{name}": amount for name, amount in vars(checks).items()})

    def _log_probs(
        self, samples: Samples, rows_r: np.ndarray, tokens_t: np.ndarray, past_T: np.ndarray | None
    ) -> tuple[np.ndarray, np.ndarray | None, np.ndarray | None]:
        """Return old and reference log-probabilities (T,) of trained responses, nan elsewhere, and the sums of squares
        of the old policy where the baseline needs them. Where a KL penalty is in the reward they cover all responses.
        past_T: old log-probabilities of replayed responses, nan for others."""
        responses, kl = samples.rollouts.responses, self.run.design.estimator.kl
        if self.run.needs_reference and kl.place == "reward":
            rows_r, tokens_t = np.arange(len(samples.texts)), np.arange(len(responses.tokens))
        old_T, ref_T, squares_T = samples.rollouts.logp, None, None
        if self.run.design.estimator.advantage.reads_squares:
            old_T, squares_T = np.full((2, len(responses.tokens)), np.nan)
            old_T[tokens_t], squares_T[tokens_t] = self.policy.all_log_probs_and_squares(responses.take(rows_r))
        elif not self.run.on_policy:
            old_T = np.full(len(responses.tokens), np.nan)
            new_r = rows_r[~samples.replayed[rows_r]]
            old_T[token_indices(responses.starts, new_r)] = self.policy.all_log_probs(responses.take(new_r))
            old_T = old_T if past_T is None else np.where(np.isnan(past_T), old_T, past_T)
        if self.reference is not None:
            ref_T = np.full(len(responses.tokens), np.nan)
            ref_T[tokens_t] = self.reference.all_log_probs(responses.take(rows_r))
        return old_T, ref_T, squares_T

    def _baseline(self, samples: Samples, rows_r: np.ndarray) -> tuple[np.ndarray | None, list[tuple[str, Samples]]]:
        """Return baselines (len(rows),) that exclude this round's rewards, where the estimator needs them, and the
        greedy responses that they come from."""
        kind, group_r = self.run.design.estimator.advantage.baseline, samples.group[rows_r]
        if kind == "greedy":
            greedy = self._scored(samples.contexts, np.ones(len(samples.contexts), dtype=np.int64), 0.0, 0)
            return greedy.reward[group_r], [("greedy", greedy)]
        if kind == "moving_average" and self.state.averages is not None:
            return read_averages(self.state.averages, samples.contexts)[group_r], []
        return None, []

    def _remember(self, samples: Samples, rewards_R: np.ndarray, rows_r: np.ndarray) -> None:
        """Push the trained rewards into the windows and averages of their prompts."""
        if self.state.windows is not None:
            push(self.state.windows, samples.contexts[samples.group[rows_r]], rewards_R[rows_r])
        if self.state.averages is not None:
            for g, context in enumerate(samples.contexts):
                mine_K = rewards_R[rows_r][samples.group[rows_r] == g]
                add_into(
                    self.state.averages, context, self.run.design.estimator.advantage.decay, mine_K, 0, len(mine_K)
                )

    def _update(
        self,
        trained,
        batch: Batch,
        old_T: np.ndarray,
        anchor_T: np.ndarray | None,
        corrected_T: np.ndarray | None,
        counted: np.ndarray,
    ):
        """Make the updates of a round, each on its prompts. Return log-probabilities (T,) before them, and whether a
        gradient was not finite, which ends them. counted: prompts of the responses that count in means over
        responses."""
        design, estimator, state, on_policy = self.run.design, self.run.design.estimator, self.state, self.run.on_policy
        size = design.batch_size // design.minibatches
        for u in range(design.epochs * design.minibatches):
            low = u % design.minibatches * size
            rows_r = rows_between(trained.group, low, low + size)
            mine, tokens_t, part = trained.take(rows_r), token_indices(trained.starts, rows_r), batch
            if design.minibatches > 1:
                now, base, sampler = (
                    None if column is None else column[tokens_t] for column in (old_T, anchor_T, corrected_T)
                )
                rows = counted[rows_between(counted, low, low + size)]
                n_rows = row_count(estimator.aggregation, rows) if self.run.mask_truncated else None
                columns = (batch.advantage[tokens_t], mine.starts, now, base)
                part = batch_from_advantages(estimator, *columns, sampler_logp=sampler, group=mine.group, n_rows=n_rows)
            if self.run.compares_tokens:
                current = old_T[tokens_t] if u == 0 else self.policy.all_log_probs(mine)
                part = apply_mask(estimator, part, current, self._keys(mine))
            bonus = None if state.bonus is None else float(state.bonus.prod())
            done = accumulate(self.policy, estimator, part, mine, on_policy, bonus)
            if state.bonus is not None:
                move_bonus(state.bonus, estimator.entropy_target, estimator.entropy_step, done.entropy)
            norm = step(self.policy, self.optimizer, self.run.optimizer, state.updates)
            state.updates += 1
            state.add(grad_norm=norm, updates=1, clipped=done.clipped, kl=done.kl, weighed=len(done.logp))
            if not math.isfinite(norm):
                return old_T, True
        return done.logp if on_policy else old_T, False

    def _keys(self, mine: Responses) -> np.ndarray | None:
        """Return the values that a mask needs at tokens besides log-probabilities: random numbers (n,) for draws, or
        entropies."""
        mask, n = self.run.design.estimator.mask, len(mine.tokens)
        if isinstance(mask, TopEntropy):
            return self.policy.all_entropies(mine)
        if not isinstance(mask, ClipCov):
            return None
        none = np.zeros(n, dtype=np.int64)
        return uniforms(self.run.seed, MASKING, self.state.updates, np.arange(n), none, 0, 1)[:, 0]
