"""The formats, one file each: `recognise(head)` says whether a file is of it, `read(path, head, columns)` gives its
runs.

A format understands nothing of what it reads: names, rounds and repairs are for studies/logs/assemble.py.
"""

from rftlab.studies.logs.formats import (
    json_lines,
    own_run,
    published,
    tensorboard,
    tidy,
    trl_state,
    verl_console,
    wandb_export,
    wandb_offline,
)

FORMATS = (wandb_offline, tensorboard, own_run, trl_state, json_lines, verl_console, published, wandb_export, tidy)
"""In the order in which they are asked."""
