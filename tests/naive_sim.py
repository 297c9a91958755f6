"""A slow twin of the simulator's round in float64 NumPy: the model's equations in the order of the text, estimators from `shared`."""

import numpy as np

from shared.pool import Pool
from shared.prepare import prepare, shaped_rewards
from shared.replay import empty_windows, push, window_pool
from shared.weigh import weigh
from sim.random import NUISANCE, ROLLOUT, key_of, normals, uniforms
from sim.run import batches
from sim.simd import LANES


def sigmoid(x):
    return 1 / (1 + np.exp(-x))


class NaiveRun:
    """The same run as `sim.run.simulate`, one obvious step after another."""

    def __init__(self, run, world):
        self.run, self.world, self.design = run, world, run.design
        self.key = key_of(run.seed)
        contexts = world.train
        self.linear = contexts.features.shape[1] > 0
        self.x = contexts.features.astype(np.float64) if self.linear else np.eye(len(contexts.base_logits))
        self.z0 = contexts.base_logits[:, : world.n_arms].astype(np.float64)
        self.h0 = contexts.base_format.astype(np.float64)
        self.w = np.zeros((self.x.shape[1], world.n_arms))
        self.theta_f, self.t = 0.0, 0
        self.moments = [np.zeros(self.w.size + 1), np.zeros(self.w.size + 1)]
        self.windows = empty_windows(len(self.z0), self.design.replay_window) if self.design.replay_window else None

    def policy(self, batch):
        z = self.z0[batch] + self.x[batch] @ self.w
        p = np.exp(z - z.max(axis=1, keepdims=True))
        p /= p.sum(axis=1, keepdims=True)
        return p, sigmoid(self.h0[batch] + self.world.format_scale * self.theta_f)

    def draw(self, round_index, context, n):
        out = np.zeros((2, n + LANES), dtype=np.float32)
        uniforms(self.key, round_index, np.array([context]), n, ROLLOUT, np.zeros((2, LANES), dtype=np.uint32), out)
        return out[:, :n].astype(np.float64)

    def nuisance(self, round_index, context):
        out = np.zeros((4, LANES), dtype=np.float32)
        normals(self.key, round_index, np.array([context] * 4), NUISANCE, np.zeros((2, LANES), dtype=np.uint32), out)
        return out[0, : self.world.n_arms].astype(np.float64)

    def logp(self, batch, arms, forms):
        p, f = self.policy(batch)
        rows = np.arange(len(batch))[:, None]
        return np.log(p[rows, arms]) + np.log(np.where(forms == 1, f[:, None], 1 - f[:, None]))

    def base_logp(self, batch, arms, forms):
        z = self.z0[batch]
        log_p = z - np.log(np.exp(z - z.max(axis=1, keepdims=True)).sum(axis=1, keepdims=True)) - z.max(axis=1, keepdims=True)
        f = sigmoid(self.h0[batch])[:, None]
        return log_p[np.arange(len(batch))[:, None], arms] + np.log(np.where(forms == 1, f, 1 - f))

    def round(self, round_index):
        d, e = self.design, self.design.estimator
        batch = batches(len(self.z0), d.batch_size, self.run.seed, round_index, round_index + 1)[0]
        n, k, m = len(batch), d.rollouts, d.support_rollouts
        p, f = self.policy(batch)
        draws = np.stack([self.draw(round_index, c, k + m) for c in batch])
        forms = (draws[:, 0] < f[:, None]).astype(int)
        arms = np.stack([np.searchsorted(np.cumsum(p[i]), draws[i, 1], side="right") for i in range(n)])
        correct = (self.world.train.correct[batch][:, None] >> arms.astype(np.uint32)) & 1
        old, ref = self.logp(batch, arms, forms), self.base_logp(batch, arms, forms)
        scored = (forms * correct).astype(np.float64)
        rewards = shaped_rewards(e, scored.ravel(), np.arange(n * (k + m) + 1), old.ravel(), ref.ravel()).reshape(n, k + m)
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
        advantage = prepare(e, raw, group, starts, old[:, :k].ravel(), ref[:, :k].ravel(), pool=pool).advantage.reshape(n, k)
        size = n // d.minibatches
        for _ in range(d.epochs):
            for low in range(0, n, size):
                part = slice(low, low + size)
                self.update(round_index, batch[part], arms[part, :k], forms[part, :k], old[part, :k], ref[part, :k], advantage[part])

    def update(self, round_index, batch, arms, forms, old, ref, advantage):
        n, k = arms.shape
        frozen = prepare(self.design.estimator, np.zeros(n * k), np.zeros(n * k, dtype=int), np.arange(n * k + 1), old.ravel(), ref.ravel())
        frozen = frozen._replace(advantage=np.ascontiguousarray(advantage.ravel()))
        weight = weigh(self.design.estimator, frozen, self.logp(batch, arms, forms).ravel()).weight.reshape(n, k)
        p, f = self.policy(batch)
        scores = np.zeros_like(p)
        for i in range(n):
            for j in range(k):
                scores[i] += weight[i, j] * (np.eye(p.shape[1])[arms[i, j]] - p[i])
            scores[i] += self.world.nuisance * np.sqrt((weight[i] ** 2).sum()) * self.nuisance(round_index, batch[i])
        grad = np.append((self.x[batch].T @ scores).ravel(), self.world.format_scale * (weight * (forms - f[:, None])).sum())
        self.step(grad)

    def step(self, grad):
        o = self.run.optimizer
        self.t += 1
        if o.kind == "sgd":
            move = o.rate * grad
        else:
            self.moments[0] = o.beta1 * self.moments[0] + (1 - o.beta1) * grad
            self.moments[1] = o.beta2 * self.moments[1] + (1 - o.beta2) * grad**2
            mean, square = self.moments[0] / (1 - o.beta1**self.t), self.moments[1] / (1 - o.beta2**self.t)
            move = o.rate * mean / (np.sqrt(square) + o.eps)
        self.w += move[:-1].reshape(self.w.shape)
        self.theta_f += move[-1]

    def pass_at_1(self):
        everything = np.arange(len(self.z0))
        p, f = self.policy(everything)
        bits = (self.world.train.correct[:, None] >> np.arange(self.world.n_arms, dtype=np.uint32)) & 1
        return float((f * (p * bits).sum(axis=1)).mean())


def naive_curve(run, world):
    """Exact train Pass@1 at every evaluation."""
    twin, values = NaiveRun(run, world), []
    for round_index in range(run.design.rounds):
        if round_index % run.design.eval_every == 0:
            values.append(twin.pass_at_1())
        twin.round(round_index)
    return np.array([*values, twin.pass_at_1()])
