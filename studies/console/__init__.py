"""The terminal: what surrounds every command, and errors as one line."""
