"""Models, runs and rewards that a test of the trainer can afford."""
