"""Facts that published studies and public runs agree on, and tests whether the simulator and `tiny` show them."""
