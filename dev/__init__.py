"""Programs that make what is shipped: fitted parameters, learning rates, reference runs."""
