"""Vectors of 16 lanes and random numbers in them, compiled; nothing here depends on the policy."""
