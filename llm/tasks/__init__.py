"""Tasks: prompts with their true answers, from the benchmarks or generated from a seed."""
