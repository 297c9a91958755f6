"""Shares of groups that teach anything, and the power of comparisons between runs."""
