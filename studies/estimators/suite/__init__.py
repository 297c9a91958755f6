"""A profile of an estimator: tasks that each isolate one difficulty, scored between two frozen anchors."""
