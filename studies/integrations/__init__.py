"""rftlab's estimators inside TRL, verl, prime-rl, slime and tinker, and cells of a study as configurations for verl."""
