"""Runs and where they are stored, the pairs and numbers of the paper, and what runs say of its claims."""
