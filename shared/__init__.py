"""Estimators of reinforcement fine-tuning, written once for the simulator and for real language models.

An estimator is a rule that gives each sampled token t a weight w_t on its score: the gradient is sum_t w_t grad log
pi(a_t). A policy-gradient objective touches the policy only through the log-probabilities of the sampled tokens, so the
package computes the objective J and w = dJ/dlogp from them. Signs: every objective is MAXIMISED; only a trainer
negates.

Glossary (shapes in brackets)
    R  responses (rollouts that are trained on), T  tokens of all responses, G  groups (contexts of the batch)
    rewards   (R,)    one reward per response
    group     (R,)    index of each response's group, 0 .. G-1, any order
    starts    (R+1,)  response i holds the tokens starts[i] .. starts[i+1]-1; packed, no padding
    pool      the baseline set: per group, the rewards that give its mean and spread
    old_logp  (T,)    log-probability under the policy that sampled;  ref_logp (T,) under the base policy
    share     (T,)    the part of each token's objective in the batch objective (the aggregation)
All arrays are float64 or int64. The package needs numpy and numba alone, and pandas where a curve is asked
for as a data frame. It has no effects beyond its compile cache.
"""
