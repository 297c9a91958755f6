"""Comparison of two or three levels of evidence: simulated, trained, published or imported runs."""
