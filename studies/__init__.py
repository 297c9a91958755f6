"""The seven experiments: cells as data, runs into a results store, claims with verdicts, figures, report, command
line."""
