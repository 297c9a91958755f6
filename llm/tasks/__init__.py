"""Load tasks: prompts with their true answers, from benchmarks, from a user's data, or generated from a seed."""
