"""Between levels: what a simulation, a small model and published numbers say about each other."""
