"""Studies beyond the seven experiments: the first runs on a user's model, and the next checks."""
