"""Is an estimator of the user's what it should be: facts and failures, measured."""
