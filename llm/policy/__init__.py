"""Use a causal language model as a policy: log-probabilities of packed responses and their gradient."""
