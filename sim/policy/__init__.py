"""Compute the outputs of a policy on contexts: logits, probabilities, answers of one or more tokens, style tokens."""
