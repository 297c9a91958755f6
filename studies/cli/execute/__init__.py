"""The actions of the commands, once a command line is parsed."""
