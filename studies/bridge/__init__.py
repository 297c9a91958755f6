"""From real runs to the simulator and back: cheap pilots on a language model, and what they calibrate."""
