"""Commands about runs that others made: import, diagnose, signal, power, advise."""
