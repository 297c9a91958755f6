"""Where models come from: pre-trained here from a seed, pip's index, a folder or the hub."""
