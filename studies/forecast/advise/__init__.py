"""Needs of a model's designs, the knowledge of them, and which to run first."""
