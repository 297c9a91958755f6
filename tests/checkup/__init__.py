"""`rftlab check`."""
