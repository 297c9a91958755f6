"""The model's equations for a slow twin of the simulator, in float64 NumPy, in the order of the text."""

from dataclasses import dataclass
from itertools import product

import numpy as np

from rftlab.shared.memory import empty_windows
from rftlab.sim.lanes.random import COMMON, INTERFERENCE, normals, seed_key, uniforms
from rftlab.sim.lanes.simd import LANES


def sigmoid(x):
    return 1 / (1 + np.exp(-x))


@dataclass
class Response:
    """A response: its answer (arms (T,), form), then style tokens (n,) with directions signs (n, A)."""

    context: int
    arms: np.ndarray
    form: int
    signs: np.ndarray
    style_tokens: np.ndarray
    old: np.ndarray = None
    """(1 + n,) log-probabilities of its answer and its style tokens: the trainer's at the start of the round, then
    the sampler's, the base policy's."""
    sampler: np.ndarray = None
    ref: np.ndarray = None
    squares: np.ndarray = None
    """(1 + n,) sums of the squared probabilities of the trainer's distributions."""
    replayed: bool = False
    scored: float = 0.0
    reward: float = 0.0
    """As scored, and after the penalties on it."""
    baseline: float = 0.0


@dataclass
class Policy:
    """What a policy makes of one context: how far its logits are from the base policy, answers' probabilities,
    format."""

    moved: np.ndarray
    p: np.ndarray
    f: float
    style: float = 0.0
    """What the logits of all style tokens have in common."""


class NaiveModel:
    """What a run has learnt, and what follows from it; `tests.support.naive.general` has the round."""

    def __init__(self, run, world):
        self.run, self.world, self.design, self.e = run, world, run.design, run.design.estimator
        self.style, self.a, self.answer_tokens = world.style, world.n_arms, world.answer_tokens
        self.width = self.a // self.answer_tokens
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
        tokens = z.reshape(len(z), self.answer_tokens, -1)
        p = np.exp(tokens - tokens.max(axis=2, keepdims=True))
        return (p / p.sum(axis=2, keepdims=True)).reshape(z.shape)

    def draw(self, stream, round_index, context, n):
        out = np.zeros((2, n + 2 * LANES), dtype=np.float32)
        uniforms(self.key, round_index, np.array([context]), n, stream, out)
        return out[:, :n].astype(np.float64)

    def normals(self, stream, round_index, context, n):
        out = np.zeros((8, LANES), dtype=np.float32)
        normals(self.key, round_index, np.array([context] * 8), stream, out)
        return out[0, :n].astype(np.float64)

    def answer_logp(self, p, arms):
        """Log-probability of answers: p (n, A), arms (n, K, T)."""
        return np.log(p[np.arange(len(p))[:, None, None], arms]).sum(axis=2)

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
        return logits * np.exp(-self.world.forgetting * (w**2).sum() / self.a)

    def others(self, round_index, batch):
        """For every context of a batch the one that it interferes with."""
        u = np.array([self.draw(INTERFERENCE, round_index, context, 1)[0, 0] for context in batch])
        return np.floor(u * len(self.z0)).astype(int)

    # --- what contexts have in common ---

    def right_arms(self, context):
        """(A,) 1 where an arm is correct."""
        return (self.world.train.correct[context] >> np.arange(self.a, dtype=np.uint32)) & 1

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
        return (np.arange(self.a) % self.style.n_styles > 0).astype(float)

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
        return np.array(found).reshape(-1, self.a)

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
        style = self.style
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

    # --- the policy ---

    def view(self, context, w=None, theta_f=None, noise=0.0, common=None):
        w, theta_f = (self.w, self.theta_f) if w is None else (w, theta_f)
        moved = self.x[context] @ w + noise
        z = self.base(context, w, common) + moved
        harm, style = self.harm(self.common if common is None else common), self.readiness(common)
        f = sigmoid(self.remembered(self.h0[context], w) + self.world.format_scale * theta_f - harm)
        return Policy(moved, self.softmax(z[None])[0], f, style)

    def base_policy(self, context):
        return self.view(context, 0 * self.w, 0.0, common=0 * self.common)

    def pass_at_1(self):
        """Strict, then flexible: with and without the chance of a well-formed response."""
        views = [self.view(context) for context in range(len(self.z0))]
        p, f = (np.array([getattr(view, name) for view in views]) for name in ("p", "f"))
        bits = (self.world.train.correct[:, None] >> np.arange(self.a, dtype=np.uint32)) & 1
        right = (p * bits).reshape(len(p), self.answer_tokens, -1).sum(axis=2).prod(axis=1)
        return (f * right).mean(), right.mean()

    def readiness(self, common=None):
        """What the logits of all style tokens have in common, at parameters in common, now by default."""
        if self.world.exploration == 0:
            return 0.0
        return -1.5 + self.world.exploration * (self.common if common is None else common)[-1]

    def slope(self):
        """Of a style token's logit in its direction: scores of a response have covariance nuisance^2 I at the base
        policy."""
        q = sigmoid(self.readiness(0 * self.common))
        return self.world.nuisance / np.sqrt(self.style.tokens * q * (1 - q)) if self.style.tokens else 0.0

    def style_logit(self, policy, response):
        return policy.style + self.slope() * response.signs @ policy.moved

    def right_answer(self, context, arms):
        return self.right((self.world.train.correct[context] >> arms.astype(np.uint32)) & 1)

    def taught(self, round_index, context):
        """What a score is multiplied with: the features of a context, and of the one that it interferes with."""
        return self.x[context] + self.world.interference * self.x[self.others(round_index, [context])[0]]

    def logps(self, policy, response):
        """Log-probabilities of a response's tokens."""
        heads = sigmoid(self.style_logit(policy, response))
        answer = self.answer_logp(policy.p[None], response.arms[None, None])[0, 0] + np.log(
            policy.f if response.form else 1 - policy.f
        )
        return np.append(answer, np.log(np.where(response.style_tokens, heads, 1 - heads)))

    def answer_entropy(self, p):
        """Of an answer's tokens together, which are independent."""
        return -(p * np.log(p)).sum()

    def entropy_gradient(self, p):
        """Of that entropy in the logits, token by token."""
        parts = np.split(p, self.answer_tokens)
        return np.concatenate([(np.diag(q) - np.outer(q, q)) @ (-np.log(q) - 1) for q in parts])

    def entropies(self, policy, response):
        """Entropies of the distributions that a response's tokens were drawn from."""
        heads = sigmoid(self.style_logit(policy, response))
        answer = self.answer_entropy(policy.p) - sum(q * np.log(q) for q in (policy.f, 1 - policy.f) if q > 0)
        return np.append(answer, -heads * np.log(heads) - (1 - heads) * np.log(1 - heads))

    def sums_of_squares(self, policy, response):
        """Squared probabilities of the distributions that a response's tokens were drawn from, summed."""
        answers = product(*np.split(np.arange(self.a), self.answer_tokens))
        chances = [policy.p[np.array(arms)].prod() * f for arms in answers for f in (policy.f, 1 - policy.f)]
        heads = sigmoid(self.style_logit(policy, response))
        return np.append(np.sum(np.square(chances)), heads**2 + (1 - heads) ** 2)

    def score(self, policy, response, weight, bonus):
        """Gradient of sum_t weight_t logp_t + bonus_t entropy_t in a context's logits, and in its format's logit; and
        the first without style tokens."""
        p, f = policy.p, policy.f
        style_logit = self.style_logit(policy, response)
        heads = sigmoid(style_logit)
        answer = weight[0] * self.answer_score(p, response.arms) + bonus[0] * self.entropy_gradient(p)
        tokens = weight[1:] * (response.style_tokens - heads) - bonus[1:] * style_logit * heads * (1 - heads)
        logits = answer + self.slope() * tokens @ response.signs
        form = weight[0] * (response.form - f) - (bonus[0] * np.log(f / (1 - f)) * f * (1 - f) if 0 < f < 1 else 0.0)
        return logits, form, answer, tokens.sum()

    def squares(self, policy, response, weight):
        """What a response, with the weights of its tokens, adds to the variance of the Gaussian nuisance over
        nuisance^2; or its style tokens' in their place, which share it among a mean number of them."""
        if self.style.tokens:
            return (weight[1:] ** 2).sum() / self.style.tokens
        return weight[0] ** 2 * self.variance(policy.p, response.arms) * self.relative_length(response.arms)

    # --- steps ---

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
