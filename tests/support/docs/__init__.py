"""Pages and notebooks of the documentation, run."""
