"""How much a group of responses teaches, and how much a measured difference means."""
