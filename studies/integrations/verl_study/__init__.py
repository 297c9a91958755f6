"""Cells of a study for verl: settings, data with their reward, and the files of a pair."""
