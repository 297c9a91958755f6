"""The page itself: what is put on it, what a visitor does with it, and the server."""
