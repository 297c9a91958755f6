"""Checks of an estimator's functions, ours or wrong ones."""
