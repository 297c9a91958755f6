"""Processes, instruction sets, environments, the command."""
