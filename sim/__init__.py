"""The simulator: a batched contextual bandit with a softmax policy, in compiled kernels.

A query is a context, a response is an arm, a rollout is a pull, a training round reveals a batch of contexts. Rewards
are 0 or 1. Estimators come from the package `shared`; this package turns their token weights into closed-form softmax
gradients.

Glossary (shapes in brackets)
    N  contexts, d  features, A  arms (Y answers x S styles), LANES = 16 columns that hold them, padded
    B  contexts of a round, K  trained rollouts per context, M  support rollouts per context
    theta     policy parameters, flat: the matrix (A, d) or (N, A), then the format parameter
    logits, probs (rows, LANES)    of one block of contexts
    format    a response is either in the required format (1) or not (0); only a well-formed correct answer has reward 1
"""

VERSION = 8
"""Version of the simulator, part of the identity of a result. It is raised when equal configurations give other
curves."""
