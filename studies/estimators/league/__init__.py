"""All estimators against each other."""
