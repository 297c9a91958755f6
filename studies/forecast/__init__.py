"""Forecasts of runs that were not made, from a pilot or from runs that are known."""
