"""A slow twin of both rounds: responses with style tokens, other samplers, replaced groups, baselines from elsewhere.

The model's equations are those of `tests.support.naive.model`, estimators come from `shared`, random numbers from
`rftlab.sim.lanes.random`.
"""

from dataclasses import replace
from itertools import pairwise, product

import numpy as np

from rftlab.shared.aggregation import shares
from rftlab.shared.config.mask import TopEntropy
from rftlab.shared.memory import add, empty_averages, push, read_averages, window_pool
from rftlab.shared.objective import apply_mask, objective_and_weights
from rftlab.shared.plumbing.pool import Pool
from rftlab.shared.prepare import batch_from_advantages, prepare, shaped_rewards
from rftlab.shared.sampling import allocate, keep_shortest
from rftlab.sim.lanes.random import LENGTH, MASKING, MISMATCH, NUISANCE, REWARDING, ROLLOUT
from rftlab.sim.policy.style import WORDS, words_into
from rftlab.sim.run import batches, simulate
from tests.support.naive.estimators import optimal_token_baseline
from tests.support.naive.model import NaiveModel, Response, sigmoid

GIVEN = ("greedy", "moving_average", "value", "optimal", "optimal_token")
TOTALS = ("rewards", "silent", "kl", "clipped", "norms")
METRICS = ("rollouts", "tokens", "reward", "train_pass_at_1", "train_flexible", "kl", "clip_fraction")
METRICS += ("zero_signal_fraction", "grad_norm")


def offsets(lengths):
    return np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64)


class NaiveGeneral(NaiveModel):
    """The same run as `rftlab.sim.run.simulate`, one obvious step after another."""

    def __init__(self, run, world):
        super().__init__(run, world)
        self.phi = np.hstack([self.x, np.ones((len(self.x), 1))]) if self.linear else self.x
        self.critic, self.averages = np.zeros(self.phi.shape[1]), empty_averages(len(self.z0))
        self.past, self.tried, self.updated, self.rollouts, self.tokens = [], 0, 0, 0, 0
        self.buffer = [[] for _ in self.z0]
        self.moving, self.coefficient = self.e.entropy, 0.0 if self.e.entropy_target else self.e.entropy

    # --- random numbers ---

    def pair(self, stream, round_index, context, draw):
        return self.draw(stream, round_index, context, draw + 1)[:, draw]

    def gauss(self, stream, round_index, context):
        return self.normals(stream, round_index, context, self.a)

    def words(self, round_index, context, draw, n):
        out, found = np.zeros((2, WORDS), dtype=np.uint32), []
        for position in range(0, n, WORDS):
            words_into(self.key, round_index, context, draw, position, out)
            found.append(out.copy())
        found = np.hstack([np.zeros((2, 0), dtype=np.uint32), *found])[:, :n]
        bits = (found[0][:, None] >> np.arange(self.a, dtype=np.uint32)) & 1
        return 2.0 * bits - 1.0, (found[1] >> np.uint32(8)) / 2.0**24

    # --- sampling ---

    def sampler_of(self, key, context):
        """The policy that samples: stale weights, noisy logits."""
        now, sampler = len(self.past) - 1, self.run.sampler
        w, theta_f, common = self.past[max(0, now - now % sampler.every - sampler.lag)]
        return self.view(context, w, theta_f, self.run.sampler.noise * self.gauss(MISMATCH, key, context), common)

    def length(self, arms, u):
        """Style tokens, by the mean of the styles of the answer's tokens."""
        s = self.style
        side = np.mean(2 * (arms % s.n_styles) / (s.n_styles - 1) - 1) if s.n_styles > 1 else 0
        return int(s.tokens * (1 + s.by_style * side) * (1 + s.jitter * (2 * u - 1)) + 0.5)

    def respond(self, key, context, draw, sampler, trainer, base):
        first = draw * self.answer_tokens
        pairs = np.array([self.pair(ROLLOUT, key, context, first + s) for s in range(self.answer_tokens)])
        arms = self.answers(sampler.p, pairs[None, :, 1])[0]
        signs, u_style = self.words(key, context, draw, self.length(arms, self.pair(LENGTH, key, context, draw)[0]))
        response = Response(context, arms, int(pairs[0, 0] < sampler.f), signs, None)
        response.style_tokens = u_style < sigmoid(self.style_logit(sampler, response))
        response.old, response.sampler, response.ref = (self.logps(one, response) for one in (trainer, sampler, base))
        if self.e.advantage.baseline == "optimal_token":
            response.squares = self.sums_of_squares(trainer, response)
        response.scored = self.scored(key, context, draw, response)
        starts = offsets([len(response.old)])
        response.reward = shaped_rewards(self.e, [response.scored], starts, response.old, response.ref)[0]
        return response

    def scored(self, key, context, draw, response):
        """Credit for the whole and for its parts, then the noise of who gives it."""
        part = self.world.partial_credit
        bits = (self.world.train.correct[context] >> response.arms.astype(np.uint32)) & 1
        credit = response.form * ((1 - part) * float(self.right_answer(context, response.arms)) + part * bits.mean())
        u, v = self.pair(REWARDING, key, context, draw)
        if u < (self.world.false_negative if credit == 1 else self.world.false_positive):
            credit = 1.0 - credit
        credit += self.world.format_reward * response.form
        return credit + self.world.reward_noise * np.sqrt(-2 * np.log(1 - u)) * np.cos(2 * np.pi * v)

    def given(self, context, policy):
        """The baseline of a context, before its rewards; the last one by enumeration of all responses."""
        kind, p, f = self.e.advantage.baseline, policy.p, policy.f
        if kind == "optimal_token":
            return np.nan  # found from the rewards, in `token_baselines`
        answers = product(*np.split(np.arange(self.a), self.answer_tokens))
        everything = [(np.array(arms), form) for arms in answers for form in (0, 1)]
        chance = np.array([p[arms].prod() * (f if form else 1 - f) for arms, form in everything])
        rewards = np.array([form * self.right_answer(context, arms) for arms, form in everything], dtype=float)
        if kind == "greedy":
            return rewards[chance.argmax()]
        if kind == "moving_average":
            return read_averages(self.averages, [context])[0]
        if kind == "value":
            return self.critic @ self.phi[context]
        x = self.taught(len(self.past) - 1, context)
        scores = [
            np.append(np.outer(x, self.answer_score(p, arms)), self.world.format_scale * (form - f))
            for arms, form in everything
        ]
        nuisance = self.a * (self.world.nuisance * np.linalg.norm(x)) ** 2
        noise = [nuisance * self.variance(p, arms) + self.common_square(context, p, arms) for arms, _ in everything]
        squares = np.array([score @ score for score in scores]) + noise
        return (chance * rewards * squares).sum() / (chance * squares).sum()

    def common_square(self, context, p, arms):
        """Expected square of an answer's score in the parameters in common, noise included."""
        score = self.answer_score(p, arms)
        noise = self.world.nuisance**2 * self.variance(p, arms) + self.world.interference**2 * (score @ score)
        return ((self.directions(context) @ score) ** 2).sum() + (self.noisiness() ** 2).sum() * noise

    def sample(self):
        """One batch of contexts: for each its trained and its support responses. Rewards are remembered once all
        baselines are found."""
        d, key = self.design, self.tried
        batch = batches(len(self.z0), d.batch_size, self.run.seed, key, key + 1)[0]
        self.tried += 1
        counts = [d.rollouts] * len(batch)
        if d.sampling.budget == "difficulty":
            counts = allocate(np.clip((self.averages[batch, 0] + 1) / (self.averages[batch, 1] + 2), 0, 1), d.rollouts)
        rows, baseline = [], self.e.advantage.baseline
        for context, count in zip(batch, counts, strict=True):
            policies = self.sampler_of(key, context), self.view(context), self.base_policy(context)
            row = [self.respond(key, context, draw, *policies) for draw in range(count + d.support_rollouts)]
            value = self.given(context, policies[1]) if baseline in GIVEN else 0.0
            for response in row:
                response.baseline = value
                self.rollouts, self.tokens = self.rollouts + 1, self.tokens + len(response.old) + self.answer_tokens - 1
            if baseline == "greedy":
                greedy = policies[1].p.reshape(self.answer_tokens, -1).argmax(axis=1) + np.arange(0, self.a, self.width)
                self.rollouts += 1
                self.tokens += self.answer_tokens + self.length(greedy, 0.5)
            past = [replace(response, baseline=value, replayed=True) for response in self.recalled(context)]
            rows.append((row[:count] + past, row[count:]))
        for context, (trained, _) in zip(batch, rows, strict=True):
            trained = [response for response in trained if not response.replayed]
            self.buffer[context] += [response for response in trained if response.scored >= 1]
            rewards, phi = np.array([response.reward for response in trained]), self.phi[context]
            add(self.averages, [context], rewards[None], self.e.advantage.decay)
            self.critic += self.run.critic_learning_rate * (rewards.mean() - self.critic @ phi) * phi / (phi @ phi)
            if self.windows is not None:
                push(self.windows, np.full(rewards.size, context), rewards)
        return rows

    def recalled(self, context):
        """The right responses of earlier visits that join a group."""
        most = self.design.sampling.replayed
        return self.buffer[context][-most:] if most else []

    def sample_round(self):
        """Rows of a round: those whose rewards differ, tried for again and again, then filled up with others of the
        last try."""
        n, tries, rows = self.design.batch_size, self.design.sampling.tries, []
        if tries == 1:
            return self.sample()
        for left in reversed(range(tries)):
            new = self.sample()
            differ = [len({response.reward for response in trained}) > 1 for trained, _ in new]
            spare = 0 if left else n - len(rows) - sum(differ)
            for row, wanted in zip(new, differ, strict=True):
                if wanted or spare > 0:
                    rows.append(row)
                    spare -= not wanted
            if len(rows) >= n:
                break
        return rows[:n]

    # --- learning ---

    def pool(self, rows, kept):
        """Baseline sets: kept responses, or the window; then support rollouts."""
        sets = [
            [response.reward for response, keep in zip(trained, kept[g], strict=True) if keep]
            for g, (trained, _) in enumerate(rows)
        ]
        if self.windows is not None:
            windows = window_pool(self.windows, [trained[0].context for trained, _ in rows])
            sets = [list(windows.rewards[a:b]) for a, b in pairwise(windows.starts)]
        sets = [own + [response.reward for response in support] for own, (_, support) in zip(sets, rows, strict=True)]
        return Pool(np.concatenate(sets), offsets([len(own) for own in sets]))

    def kept(self, trained):
        """Which of a group's responses are trained on."""
        keep, lengths = self.design.sampling.keep, [len(response.old) for response in trained]
        return keep_shortest(lengths, [0, len(trained)], keep) if keep else np.ones(len(trained), dtype=bool)

    def token_baselines(self, everyone, starts, group):
        """The optimal token baseline of a round's responses (T,)."""
        columns = ([np.full(len(one.old), one.reward), one.old, one.squares] for one in everyone)
        returns, old, squares = map(np.concatenate, zip(*columns, strict=True))
        return np.array(optimal_token_baseline(returns, old, squares, starts, group, eps=0.0))

    def round(self, totals):
        d = self.design
        self.past.append((self.w.copy(), self.theta_f, self.common.copy()))
        rows = self.sample_round()
        kept = [self.kept(trained) for trained, _ in rows]
        pool, trained, keeps = self.pool(rows, kept), [row for row, _ in rows], np.concatenate(kept)
        everyone = [response for row in trained for response in row]
        group = np.repeat(np.arange(len(rows)), [len(row) for row in trained])
        lengths = [len(response.old) for response in everyone]
        starts = offsets(lengths)
        scored, baseline = (
            np.array([getattr(response, name) for response in everyone]) for name in ("scored", "baseline")
        )
        old, ref = (np.concatenate([getattr(response, name) for response in everyone]) for name in ("old", "ref"))
        baseline = baseline if self.e.advantage.baseline in GIVEN else None
        if self.e.advantage.baseline == "optimal_token":
            baseline = self.token_baselines(everyone, starts, group)
        more, forms = {"pool": pool, "baseline": baseline}, np.array([float(response.form) for response in everyone])
        if self.e.advantage.combine == "advantages":
            forms *= self.world.format_reward
            more = {"several": (np.array([scored - forms, forms]), np.ones(2))}
        advantage = prepare(self.e, scored, group, starts, old, ref, **more).advantage * np.repeat(keeps, lengths)
        first = advantage[starts[:-1]]
        totals["rewards"] += [response.reward for response in everyone if not response.replayed]
        totals["silent"] += [not first[group == g].any() for g in range(len(rows))]
        size = len(rows) // d.minibatches
        for _ in range(d.epochs):
            for low in range(0, len(rows), size):
                chosen = (group >= low) & (group < low + size)
                tokens = np.repeat(chosen, lengths)
                self.update(len(self.past) - 1, trained[low : low + size], advantage[tokens], totals)

    def update(self, round_index, rows, advantage, totals):
        e, part = self.e, [response for row in rows for response in row]
        lengths = [len(response.old) for response in part]
        starts, views = offsets(lengths), [self.view(row[0].context) for row in rows]
        policies = [view for view, row in zip(views, rows, strict=True) for _ in row]
        old, ref, sampler = (
            np.concatenate([getattr(response, name) for response in part]) for name in ("old", "ref", "sampler")
        )
        logp = np.concatenate([self.logps(policy, response) for policy, response in zip(policies, part, strict=True)])
        columns, group = ((advantage, starts, old, ref), np.repeat(np.arange(len(rows)), [*map(len, rows)]))
        batch = batch_from_advantages(e, *columns, sampler_logp=sampler, group=group)
        keys = np.array([self.pair(MASKING, self.updated, t, 0)[0] for t in range(len(logp))])
        if isinstance(e.mask, TopEntropy):
            pairs = zip(policies, part, strict=True)
            keys = np.concatenate([self.entropies(policy, response) for policy, response in pairs])
        stretch = np.repeat(self.stretch(np.array([response.arms for response in part])), lengths)
        batch = batch._replace(share=batch.share * stretch, kl_share=batch.kl_share * stretch)
        found = objective_and_weights(e, apply_mask(e, batch, logp, keys), logp)
        coefficient = self.coefficient
        if e.entropy_target:
            pairs = zip(policies, part, strict=True)
            entropy = np.concatenate([self.entropies(policy, response) for policy, response in pairs]).mean()
            below = entropy <= e.entropy_target
            self.moving = float(np.clip(self.moving + (e.entropy_step if below else -e.entropy_step), 0, 1))
            self.coefficient = self.moving if below else 0.0
        bonus, at = coefficient * shares(e.aggregation, starts, group=group) * stretch, 0
        grad = np.zeros(self.moments[0].size)
        matrix, between = slice(0, self.w.size), slice(self.w.size, -1)
        for row in rows:
            context, squares, answers = row[0].context, 0.0, np.zeros(self.a)
            taught = self.taught(round_index, context)
            for response in row:
                tokens = slice(starts[at], starts[at + 1])
                logits, form, answer, readier = self.score(policies[at], response, found.weight[tokens], bonus[tokens])
                grad[matrix] += np.outer(taught, logits).ravel()
                grad[-1] += self.world.format_scale * form
                answers += answer
                if self.world.exploration > 0:
                    grad[-2] += self.world.exploration * readier
                squares += self.squares(policies[at], response, found.weight[tokens])
                at += 1
            grad[between] += self.common_gradient(round_index, context, answers, self.world.nuisance**2 * squares)
            if not self.style.tokens:
                noise = self.world.nuisance * np.sqrt(squares) * self.gauss(NUISANCE, round_index, context)
                grad[matrix] += np.outer(taught, noise).ravel()
        self.updated += 1
        totals["kl"] += [found.kl / len(logp)] * len(logp)
        totals["clipped"] += [found.clipped / len(logp)] * len(logp)
        totals["norms"].append(np.linalg.norm(grad))
        self.step(grad)


def general_curve(run, world, twin=NaiveGeneral):
    """The columns METRICS of the curve of `run`, by name."""
    twin, rows, totals = twin(run, world), [], {name: [np.nan] for name in TOTALS}
    for round_index in range(run.design.rounds + 1):
        if round_index % run.design.eval_every == 0:
            means = {name: np.mean(values) for name, values in totals.items()}
            kl = means["kl"] if run.design.estimator.kl.kind != "none" else np.nan
            rates = (means["rewards"], *twin.pass_at_1())
            rows.append((twin.rollouts, twin.tokens, *rates, kl, means["clipped"], means["silent"], means["norms"]))
            totals = {name: [] for name in TOTALS}
        if round_index < run.design.rounds:
            twin.round(totals)
    return dict(zip(METRICS, np.array(rows, dtype=np.float64).T, strict=True))


def differences(run, columns, world):
    """Largest difference of each metric between the simulator's curve and `columns`."""
    curve = simulate(run, world).curve
    for name in METRICS:
        np.testing.assert_array_equal(np.isnan(getattr(curve, name)), np.isnan(columns[name]))
    return {name: np.nanmax(np.abs(getattr(curve, name) - columns[name]), initial=0.0) for name in METRICS}
