"""The formats, one file each: `recognise(head)` says whether a file is of it, `read(path, head, columns)` gives its
runs.

A format understands nothing of what it reads: names, rounds and repairs are for studies/readers/assemble.py.
"""

from rftlab.studies.readers.formats import (
    json_document,
    json_lines,
    own_run,
    published,
    rollout_records,
    tensorboard,
    tidy,
    trackio,
    trl_console,
    trl_state,
    verl_console,
    wandb_export,
    wandb_offline,
)

FORMATS = (
    wandb_offline,
    tensorboard,
    trackio,
    own_run,
    trl_state,
    rollout_records,
    json_lines,
    trl_console,
    verl_console,
    json_document,
    published,
    wandb_export,
    tidy,
)
"""In the order in which they are asked."""
