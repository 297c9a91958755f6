"""Objectives of estimators on tensors, for any training loop: on the tensors' own device, ready for autograd."""
