"""Studies beyond the seven experiments: what to run first on a model of one's own, and what to check next."""
