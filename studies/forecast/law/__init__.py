"""The law of the effective batch: what a round of a design is worth, forecasts by it, and how good they are."""
