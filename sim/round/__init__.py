"""A training round: sample, find baselines and advantages, update; and evaluation."""
