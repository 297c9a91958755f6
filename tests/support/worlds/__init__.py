"""Small simulated worlds, and runs of them."""
