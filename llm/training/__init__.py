"""A round of training, and its checkpoints and records."""
