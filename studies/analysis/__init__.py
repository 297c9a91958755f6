"""Analyses of runs: comparisons, diagnoses, imported logs and the public runs that come with the package."""
