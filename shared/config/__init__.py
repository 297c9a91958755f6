"""The choices that make up an estimator, one file each: what a run is told, and the numbers that kernels take of it.
Nothing here is compiled."""
