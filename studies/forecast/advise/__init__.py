"""Advice on a model: the costs of designs, what is known of them, and which to run first."""
