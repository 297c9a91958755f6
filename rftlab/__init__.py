"""Which design choices of reinforcement fine-tuning matter: a simulator, a trainer of language models, and studies of both."""
