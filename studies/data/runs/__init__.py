"""Runs of a study: points, the store, runners over threads, processes and machines."""
