"""Tables on a terminal, and the surroundings of every command: errors as one line, interrupts, closed pipes."""
