"""How good forecasts are: what was known, what was held out, and how far off each was."""
