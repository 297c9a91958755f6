"""Scores of forecasts: the known part, the held-out part, and the error of each forecast."""
