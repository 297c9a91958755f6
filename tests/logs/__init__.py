"""Imported training logs."""
