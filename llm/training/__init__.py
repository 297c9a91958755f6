"""Train a round, and write its checkpoints and records."""
