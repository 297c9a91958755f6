"""Public training logs of pre-trained models: what was logged, how noisy it is, and which claims it can test."""
