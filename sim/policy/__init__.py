"""What a policy makes of contexts: logits, probabilities, answers of one or more tokens, style."""
