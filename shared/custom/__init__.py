"""Custom functions in the place of an advantage, a surrogate or a reward.

plugins reads the files that define them, identity computes a checksum of what one does, registry holds them by name,
functions and groups call one from compiled code, and slow reports those that take long. The configurations of
estimators import this package.
"""
