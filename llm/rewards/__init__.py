"""From a response and the truth to rewards. Text of a model is matched and parsed, never evaluated."""
