"""Answer `rftlab check`: describe a run's batch and its health, and name changes worth trying (docs/check.md)."""
