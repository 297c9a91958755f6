"""Measurements on a real model, to which the simulator is calibrated."""
