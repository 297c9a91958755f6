"""Compute rewards from responses and true answers. A model's text is matched and parsed, never evaluated."""
