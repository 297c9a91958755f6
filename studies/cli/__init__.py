"""The command line, on top of everything: nothing else imports it."""
