"""rftlab's estimators inside other people's training loops."""
