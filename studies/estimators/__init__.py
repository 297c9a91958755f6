"""Estimators seen from outside: tables of their cards, checks of their properties, and the suite that compares them."""
