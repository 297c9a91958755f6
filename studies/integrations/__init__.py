"""rftlab's estimators inside TRL and verl, and cells of a study as configurations for verl."""
