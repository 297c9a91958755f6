"""From a response and the truth to rewards. What a model wrote is matched and parsed, never evaluated."""
