"""Configurations of an estimator's choices, one file each, with the numbers that kernels take from them. Nothing here
is compiled."""
