"""Log formats, each recognised by the content of a file.

A format understands nothing of what it reads: names, rounds and repairs are for studies/readers/assemble.py.
"""
