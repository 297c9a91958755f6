"""Settings of every test: hypothesis draws the same examples each time and leaves no database behind."""

from hypothesis import settings

settings.register_profile("rftlab", deadline=None, derandomize=True, database=None)
settings.load_profile("rftlab")
