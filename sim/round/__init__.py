"""Compute a training round (rollouts, baselines, advantages, updates), and evaluate a policy."""
