"""What tests of estimators share: reference vectors, random batches, the same functions on tensors."""
