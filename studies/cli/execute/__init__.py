"""What the commands do, once a command line is parsed."""
