"""Suite of tasks that profiles an estimator: each isolates one difficulty and is scored between two frozen anchors."""
