"""Reference vectors of other libraries, and how ours are compared with them."""
