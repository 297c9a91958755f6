"""Plug-ins that run rftlab's estimators in TRL, verl, prime-rl, slime and tinker, and configurations for verl."""
