"""Measurements on a real model, from which a simulator of it is made."""
