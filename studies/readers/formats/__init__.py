"""Log formats, each recognised by the content of a file.

A format does not interpret what it reads: names, rounds and repairs are the task of studies/readers/assemble.py.
"""
