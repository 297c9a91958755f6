"""A process that holds a lock."""

HOLDER = """
import sys, time
from pathlib import Path
from rftlab.llm.stored import locked
with locked(Path(sys.argv[1]), print):
    print("held", flush=True)
    time.sleep(120)
"""
