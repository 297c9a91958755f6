"""Reinforcement fine-tuning as a batched contextual bandit: the whole loop, in plain NumPy. Read it from top to bottom.

A question is a *context*. A response is an *arm*. A sampled response is a *rollout*, a pull of that arm. It earns 1 if
it is right and 0 if not. A *policy* is a chance for every arm. Learning means making arms likelier that earned more
than usual. A language model has one arm for every text. Here a context has four, so that nothing hides the idea.

    python examples/reinforce.py
"""

import numpy as np

CONTEXTS, ARMS = 16, 4  # questions, and responses to each
BATCH_SIZE, ROLLOUTS = 8, 4  # B contexts a round, K rollouts of each
ROUNDS, EVALUATE_EVERY = 200, 20
LEARNING_RATE = 2.0


def base_policy(rng):
    """Logits (contexts, arms) before training: what pre-training left, here drawn at random."""
    return rng.standard_normal((CONTEXTS, ARMS))


def softmax(logits):
    """Chances (n, arms) from logits (n, arms). The largest is taken off first, so that nothing overflows."""
    powers = np.exp(logits - logits.max(axis=1, keepdims=True))
    return powers / powers.sum(axis=1, keepdims=True)


def reward_of(arms):
    """1 where a response is right, else 0: a verifiable reward. The first arm is right, but the policy is not told."""
    return (arms == 0).astype(float)


def pass_at_1(logits):
    """The chance that one sampled response is right, averaged over all contexts. With so few arms it is exact."""
    return softmax(logits)[:, 0].mean()


def sample(chances, rng):
    """K arms of each context, (B, K): a uniform number falls between two steps of the cumulative chances."""
    uniform = rng.random((len(chances), ROLLOUTS, 1))
    return (uniform > chances.cumsum(axis=1)[:, None, :-1]).sum(axis=2)


def gradient(chances, arms, advantages):
    """Slope (B, arms) of the batch's objective in the logits.

    The score of a rollout is d log chance[arm] / d logits = onehot(arm) - chances. REINFORCE (Williams 1992) adds up
    advantage times score: a rollout with a positive advantage raises the logit of its arm and lowers the others. The
    mean over all B x K rollouts keeps the size of a step the same whatever the batch.
    """
    scores = np.eye(ARMS)[arms] - chances[:, None, :]  # (B, K, arms)
    return (advantages[:, :, None] * scores).sum(axis=1) / arms.size


def batches(rng):
    """Batches (B,) of contexts without end: each context once in an epoch, in a new order each time."""
    while True:
        order = rng.permutation(CONTEXTS)
        yield from order[: CONTEXTS // BATCH_SIZE * BATCH_SIZE].reshape(-1, BATCH_SIZE)


def train(logits, seed):
    """Train a copy of the logits; return Pass@1 before training and after every EVALUATE_EVERY rounds."""
    logits, rng, curve = logits.copy(), np.random.default_rng(seed), [pass_at_1(logits)]
    for done, batch in zip(range(1, ROUNDS + 1), batches(rng), strict=False):
        # 1. Look. What would the policy answer to the questions of this round?
        chances = softmax(logits[batch])
        # 2. Roll out. Only sampled responses get a reward: that is what makes it a bandit.
        arms = sample(chances, rng)
        rewards = reward_of(arms)
        # 3. Compare. The mean of a context's own rollouts says what is usual there. Without it an easy question would
        #    push hardest. Where all K rollouts are right, or all wrong, a context teaches nothing this round.
        advantages = rewards - rewards.mean(axis=1, keepdims=True)
        # 4. Climb. One step up the slope. Objectives are maximised here, so the sign is plus.
        logits[batch] += LEARNING_RATE * gradient(chances, arms, advantages)
        # 5. Evaluate, now and then, on all contexts.
        if done % EVALUATE_EVERY == 0:
            curve.append(pass_at_1(logits))
    return np.array(curve)


def main():
    """Print the mean curve of 20 training runs, which differ in the order of contexts and in what was sampled."""
    logits = base_policy(np.random.Generator(np.random.Philox(0)))  # as rftlab's Tabular environment draws it
    curves = np.array([train(logits, seed) for seed in range(20)])
    print("round  Pass@1")
    for i, value in enumerate(curves.mean(axis=0)):
        print(f"{i * EVALUATE_EVERY:5}   {value:.3f}  {'#' * round(40 * value)}")


if __name__ == "__main__":
    main()
