"""The results of runs: endpoints, claims with verdicts, intervals, the reference runs that are shipped."""
