"""Small training logs, with values that are known."""
