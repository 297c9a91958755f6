"""Wrong variants of the estimators."""
