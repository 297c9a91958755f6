"""Custom functions in the place of an advantage, a surrogate or a reward.

plugins reads the files that have them, identity says when one is the same function, registry has them by their names,
functions and groups are how compiled code calls one, and slow says where one takes long. The configuration of
estimators stands on top of this room.
"""
