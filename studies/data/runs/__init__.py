"""Runs of a study: configurations, the store, and runners over threads, processes and machines."""
