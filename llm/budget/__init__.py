"""Estimate memory and time of a run from its configuration, without torch."""
