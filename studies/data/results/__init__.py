"""What runs say: endpoints, claims with verdicts, intervals, the reference runs that are shipped."""
