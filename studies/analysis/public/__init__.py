"""Public training logs of pre-trained models: their metrics, their noise, and the claims that they can test."""
