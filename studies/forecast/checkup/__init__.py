"""`rftlab check`: what a run's batch is, whether the run is healthy, and what is worth trying (docs/check.md)."""
