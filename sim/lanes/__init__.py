"""Vectors of 16 lanes, and random numbers in them: compiled, below everything that knows what a policy is."""
