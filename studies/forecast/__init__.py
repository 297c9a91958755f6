"""From a pilot to forecasts of runs that were not made, and how good such forecasts are."""
