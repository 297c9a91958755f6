"""In which order the groups of a run are shown; apart, because the command line is parsed without pandas."""

from typing import Literal

Order = Literal["worst", "changed", "round"]
"""The lowest mean rewards first; the prompts whose rewards changed most; or as they were sampled."""
