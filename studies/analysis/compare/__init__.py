"""Levels side by side."""
