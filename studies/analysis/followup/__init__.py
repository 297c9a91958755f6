"""Studies beyond the paper's seven experiments: the first runs on a user's model, and the next checks."""
