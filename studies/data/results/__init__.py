"""Results of runs: endpoints, claims with verdicts, intervals, and the shipped reference runs."""
