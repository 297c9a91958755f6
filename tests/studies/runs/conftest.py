"""A results store for each test."""

from tests.support.stores import root  # noqa: F401
