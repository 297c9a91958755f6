"""From a pilot to forecasts of runs that were not made."""
