"""Cells as verl runs them: settings, data with its reward, and the files of a pair."""
