"""A function of the user's in the place of an advantage or a surrogate: what it is registered as (functions), how
compiled code calls it (call), and how it is handed the groups of a batch (groups)."""
