"""Runs and their store, the pairs and numbers of the paper, and the verdicts of runs on its claims."""
