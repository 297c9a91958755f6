"""A slow twin of the simulator's round in float64 NumPy: the model's equations in the order of the text, estimators
from `shared`."""

import numpy as np

from rftlab.shared.memory import empty_windows, push, window_pool
from rftlab.shared.objective import objective_and_weights
from rftlab.shared.plumbing.pool import Pool
from rftlab.shared.prepare import prepare, shaped_rewards
from rftlab.sim.lanes.random import COMMON, INTERFERENCE, NUISANCE, ROLLOUT, normals, seed_key, uniforms
from rftlab.sim.lanes.simd import LANES
from rftlab.sim.run import batches


def sigmoid(x):
    return 1 / (1 + np.exp(-x))


class NaiveRun:
    """The same run as `rftlab.sim.run.simulate`, one obvious step after another."""

    def __init__(self, run, world):
        self.run, self.world, self.design = run, world, run.design
        self.key = seed_key(run.seed)
        contexts = world.train
        self.linear = contexts.features.shape[1] > 0
        self.x = contexts.features.astype(np.float64) if self.linear else np.eye(len(contexts.base_logits))
        self.z0 = contexts.base_logits[:, : world.n_arms].astype(np.float64)
        self.h0 = contexts.base_format.astype(np.float64)
        self.w = np.zeros((self.x.shape[1], world.n_arms))
        self.theta_f, self.t = 0.0, 0
        counts = (world.sharpening > 0, world.correctness_parts * (world.correctness > 0), 4 * (world.damage > 0))
        self.counts = [int(count) for count in (*counts, world.verbosity > 0, world.exploration > 0)]
        self.common = np.zeros(sum(self.counts))
        self.moments = [np.zeros(self.w.size + self.common.size + 1) for _ in range(2)]
        self.windows = empty_windows(len(self.z0), self.design.replay_window) if self.design.replay_window else None

    def softmax(self, z):
        """Probabilities (n, A) of logits (n, A): those of each token sum to 1."""
        tokens = z.reshape(len(z), self.world.answer_tokens, -1)
        p = np.exp(tokens - tokens.max(axis=2, keepdims=True))
        return (p / p.sum(axis=2, keepdims=True)).reshape(z.shape)

    def policy(self, batch):
        z, h = np.stack([self.base(context) for context in batch]), self.remembered(self.h0[batch])
        h += self.world.format_scale * self.theta_f - self.harm(self.common)
        return self.softmax(z + self.x[batch] @ self.w), sigmoid(h)

    def draw(self, stream, round_index, context, n):
        out = np.zeros((2, n + 2 * LANES), dtype=np.float32)
        uniforms(self.key, round_index, np.array([context]), n, stream, out)
        return out[:, :n].astype(np.float64)

    def normals(self, stream, round_index, context, n):
        out = np.zeros((8, LANES), dtype=np.float32)
        normals(self.key, round_index, np.array([context] * 8), stream, out)
        return out[0, :n].astype(np.float64)

    def nuisance(self, round_index, context):
        return self.normals(NUISANCE, round_index, context, self.world.n_arms)

    def answer_logp(self, p, arms):
        """Log-probability of answers: p (n, A), arms (n, K, T)."""
        return np.log(p[np.arange(len(p))[:, None, None], arms]).sum(axis=2)

    def logp(self, batch, arms, forms):
        p, f = self.policy(batch)
        return self.answer_logp(p, arms) + np.log(np.where(forms == 1, f[:, None], 1 - f[:, None]))

    def base_logp(self, batch, arms, forms):
        f = sigmoid(self.h0[batch])[:, None]
        return self.answer_logp(self.softmax(self.z0[batch]), arms) + np.log(np.where(forms == 1, f, 1 - f))

    # --- answers of several tokens, surprise, interference, forgetting ---

    def answers(self, p, v):
        """Arms (K, T) of a context with probabilities p (A,): each token's by inversion of its v (K, T)."""
        width = len(p) // v.shape[1]
        cdf = [np.cumsum(part) for part in np.split(p, v.shape[1])]
        return np.stack([s * width + np.searchsorted(cdf[s], v[:, s], side="right") for s in range(v.shape[1])], axis=1)

    def right(self, bits):
        """Which answers are right: bits (..., T) say which of their tokens are."""
        return bits.all(axis=-1)

    def answer_score(self, p, arms):
        """Score (A,) of an answer of arms (T,)."""
        return np.bincount(arms, minlength=len(p)) - p

    def variance(self, p, arms):
        """Variance of a rollout's nuisance, relative to nuisance^2."""
        return 1 - self.world.surprise + self.world.surprise * (self.answer_score(p, arms) ** 2).sum()

    def remembered(self, logits, w=None):
        """What is left of logits of the base policy at parameters w, now by default."""
        w = self.w if w is None else w
        return logits * np.exp(-self.world.forgetting * (w**2).sum() / self.world.n_arms)

    def others(self, round_index, batch):
        """For every context of a batch the one that it interferes with."""
        u = np.array([self.draw(INTERFERENCE, round_index, context, 1)[0, 0] for context in batch])
        return np.floor(u * len(self.z0)).astype(int)

    # --- what contexts have in common ---

    def right_arms(self, context):
        """(A,) 1 where an arm is correct."""
        return (self.world.train.correct[context] >> np.arange(self.world.n_arms, dtype=np.uint32)) & 1

    def split(self, common):
        """The parameters in common by kind: sharpening, correctness, damage, verbosity, exploration."""
        return np.split(common, np.cumsum(self.counts)[:-1])

    def sharpness(self, common):
        """Factor of the base policy's logits that is learnt."""
        return max(1 + self.world.sharpening * common[0], 1e-6) if self.world.sharpening > 0 else 1.0

    def lift(self, common):
        """Bonus of correct arms."""
        return self.world.correctness / np.sqrt(self.world.correctness_parts) * self.split(common)[1].sum()

    def harm(self, common):
        """What the logit of the format has lost."""
        return self.world.damage * (self.split(common)[2] ** 2).mean() if self.world.damage > 0 else 0.0

    def long_arms(self):
        """(A,) 1 where an arm's style is not the first."""
        return (np.arange(self.world.n_arms) % self.world.style.n_styles > 0).astype(float)

    def lengthen(self, common):
        """Bonus of long arms."""
        return self.world.verbosity * self.split(common)[3].sum()

    def base(self, context, w=None, common=None):
        """What has become of the base policy's logits (A,) at parameters w and common, now by default."""
        common = self.common if common is None else common
        kept = self.remembered(self.z0[context], w)
        z = self.sharpness(common) * kept + self.lift(common) * self.right_arms(context)
        return z + self.lengthen(common) * self.long_arms()

    def directions(self, context):
        """d logits / d parameters in common (n, A)."""
        sharp = self.world.sharpening * self.remembered(self.z0[context])
        parts, right = self.world.correctness_parts, self.right_arms(context)
        found = [] if self.world.sharpening == 0 else [sharp if self.sharpness(self.common) > 1e-6 else 0 * sharp]
        found += [] if self.world.correctness == 0 else [self.world.correctness / np.sqrt(parts) * right] * parts
        found += [] if self.world.damage == 0 else [0 * sharp] * 4
        found += [] if self.world.verbosity == 0 else [self.world.verbosity * self.long_arms()]
        found += [] if self.world.exploration == 0 else [0 * sharp]
        return np.array(found).reshape(-1, self.world.n_arms)

    def common_noise(self, round_index, context):
        """Standard normals, one for each parameter in common."""
        return self.normals(COMMON, round_index, context, self.common.size)

    def noisiness(self):
        """Noise of the parameters in common, as multiples of a parameter of W's."""
        return np.repeat([1.0, 1.0, 1.0, self.world.verbosity_noise, 0.0], self.counts)

    def common_gradient(self, round_index, context, score, variance):
        """What a context teaches the parameters in common: score (A,) without its nuisance, of which a parameter has
        `variance`."""
        spread = np.sqrt(variance + self.world.interference**2 * (score**2).sum())
        noise = self.common_noise(round_index, context) * self.noisiness()
        return self.directions(context) @ score + spread * noise

    # --- virtual lengths ---

    def relative_length(self, arms):
        """Length of answers of arms (..., T) relative to the mean."""
        style = self.world.style
        if style.tokens > 0 or style.n_styles == 1:
            return np.ones(arms.shape[:-1])
        return 1 + style.by_style * (2 * (arms % style.n_styles) / (style.n_styles - 1) - 1).mean(axis=-1)

    def stretch(self, arms):
        """Factors (R,) of the shares of the responses of an optimiser batch, arms (R, T)."""
        rule, length = self.design.estimator.aggregation, self.relative_length(arms)
        if rule.kind == "seq_mean_token_mean":
            return (1 + rule.eps) / (length + rule.eps)
        parts = {"token_mean": len(length), "prompt_mean": self.design.rollouts}
        parts |= {"micro_batch_token_mean": rule.micro_batch}
        size = parts.get(rule.kind)
        groups = [length[i : i + size] for i in range(0, len(length), size)] if size else [0 * length + 1]
        return np.concatenate([np.full(len(g), (len(g) + rule.eps) / (g.sum() + rule.eps)) for g in groups])

    # --- a round ---

    def round(self, round_index):
        d, e = self.design, self.design.estimator
        batch = batches(len(self.z0), d.batch_size, self.run.seed, round_index, round_index + 1)[0]
        n, k, m, tokens = len(batch), d.rollouts, d.support_rollouts, self.world.answer_tokens
        p, f = self.policy(batch)
        draws = np.stack([self.draw(ROLLOUT, round_index, c, (k + m) * tokens) for c in batch])
        draws = draws.reshape(n, 2, k + m, tokens)
        forms = (draws[:, 0, :, 0] < f[:, None]).astype(int)
        arms = np.stack([self.answers(p[i], draws[i, 1]) for i in range(n)])
        correct = self.right((self.world.train.correct[batch][:, None, None] >> arms.astype(np.uint32)) & 1)
        old, ref = self.logp(batch, arms, forms), self.base_logp(batch, arms, forms)
        scored = (forms * correct).astype(np.float64)
        rewards = shaped_rewards(e, scored.ravel(), np.arange(n * (k + m) + 1), old.ravel(), ref.ravel())
        rewards = rewards.reshape(n, k + m)
        trained, support = rewards[:, :k], rewards[:, k:]
        sets = [list(row) for row in trained]
        if self.windows is not None:
            push(self.windows, np.repeat(batch, k), trained.ravel())
            pool = window_pool(self.windows, batch)
            sets = [list(pool.rewards[pool.starts[i] : pool.starts[i + 1]]) for i in range(n)]
        sets = [own + list(extra) for own, extra in zip(sets, support, strict=True)]
        pool = Pool(np.concatenate(sets), np.concatenate([[0], np.cumsum([len(own) for own in sets])]).astype(np.int64))
        group = np.repeat(np.arange(n), k)
        starts, raw = np.arange(n * k + 1), scored[:, :k].ravel()
        frozen = prepare(e, raw, group, starts, old[:, :k].ravel(), ref[:, :k].ravel(), pool=pool)
        advantage = frozen.advantage.reshape(n, k)
        size = n // d.minibatches
        for _ in range(d.epochs):
            for low in range(0, n, size):
                part = slice(low, low + size)
                columns = (column[part, :k] for column in (arms, forms, old, ref))
                self.update(round_index, batch[part], *columns, advantage[part])

    def update(self, round_index, batch, arms, forms, old, ref, advantage):
        n, k, _ = arms.shape
        e, stretch = self.design.estimator, self.stretch(arms.reshape(n * k, -1))
        columns = np.zeros(n * k), np.zeros(n * k, dtype=int), np.arange(n * k + 1), old.ravel(), ref.ravel()
        frozen = prepare(e, *columns)._replace(advantage=np.ascontiguousarray(advantage.ravel()))
        frozen = frozen._replace(share=frozen.share * stretch, kl_share=frozen.kl_share * stretch)
        weight = objective_and_weights(e, frozen, self.logp(batch, arms, forms).ravel()).weight.reshape(n, k)
        p, f = self.policy(batch)
        scores, common = np.zeros_like(p), np.zeros(self.common.size)
        for i in range(n):
            for j in range(k):
                scores[i] += weight[i, j] * self.answer_score(p[i], arms[i, j])
            long = self.relative_length(arms[i])
            squares = sum(weight[i, j] ** 2 * long[j] * self.variance(p[i], arms[i, j]) for j in range(k))
            common += self.common_gradient(round_index, batch[i], scores[i], self.world.nuisance**2 * squares)
            scores[i] += self.world.nuisance * np.sqrt(squares) * self.nuisance(round_index, batch[i])
        taught = self.x[batch] + self.world.interference * self.x[self.others(round_index, batch)]
        format_grad = self.world.format_scale * (weight * (forms - f[:, None])).sum()
        self.step(np.concatenate([(taught.T @ scores).ravel(), common, [format_grad]]))

    def step(self, grad):
        o = self.run.optimizer
        self.t += 1
        if o.kind == "sgd":
            move = o.learning_rate * grad
        else:
            self.moments[0] = o.beta1 * self.moments[0] + (1 - o.beta1) * grad
            self.moments[1] = o.beta2 * self.moments[1] + (1 - o.beta2) * grad**2
            mean, square = self.moments[0] / (1 - o.beta1**self.t), self.moments[1] / (1 - o.beta2**self.t)
            move = self.stored(o.learning_rate * mean / (np.sqrt(square) + o.eps))
        self.w += move[: self.w.size].reshape(self.w.shape)
        self.common += move[self.w.size : -1]
        self.theta_f += move[-1]

    def stored(self, move):
        """What is left of a step where weights are stored in bf16."""
        if self.run.optimizer.bf16_rate == 0:
            return move
        y = 2 / np.sqrt(np.pi) * 450 * move * self.run.optimizer.bf16_rate / self.run.optimizer.learning_rate
        y /= 0.02 * np.sqrt(2)
        return move * np.abs(y) / np.sqrt(1 + y**2)

    def pass_at_1(self):
        """Strict, then flexible: with and without the chance of a well-formed response."""
        everything = np.arange(len(self.z0))
        p, f = self.policy(everything)
        bits = (self.world.train.correct[:, None] >> np.arange(self.world.n_arms, dtype=np.uint32)) & 1
        right = (p * bits).reshape(len(p), self.world.answer_tokens, -1).sum(axis=2).prod(axis=1)
        return (f * right).mean(), right.mean()


def rates_of(curve):
    """Train Pass@1 (2, evaluations) of a curve, strict and flexible."""
    return np.array([curve.train_pass_at_1, curve.train_flexible])


def naive_curve(run, world, twin=NaiveRun):
    """Exact train Pass@1 (2, evaluations), strict and flexible."""
    twin, values = twin(run, world), []
    for round_index in range(run.design.rounds):
        if round_index % run.design.eval_every == 0:
            values.append(twin.pass_at_1())
        twin.round(round_index)
    return np.array([*values, twin.pass_at_1()]).T
