"""What designs of a model would need, what is known of them, and which to run first."""
