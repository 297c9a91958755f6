"""Eleven checks of a GPU before a training run: `make gpu-check`, docs/llm.md."""
