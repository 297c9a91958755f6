"""Slow twins: the same equations, one obvious step after another."""
