"""Cells of a study for engines that run elsewhere: configurations, data and commands, which need no engine to write."""
