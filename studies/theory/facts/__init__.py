"""Facts that published studies and public runs agree on, and whether the simulator and `tiny` show them."""
