"""Estimators from outside: what a card says, what is wrong with one, and how they compare."""
