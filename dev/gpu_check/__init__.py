"""Eleven checks of a GPU before anything is trained on it: `make gpu-check`, docs/llm.md."""
