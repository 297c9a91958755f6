"""Load models: pre-trained here from a seed, from pip's index, from a folder, or from the hub."""
