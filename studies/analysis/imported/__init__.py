"""Imported runs as a level of evidence: designs of any kind, several tasks and models, and any logged metric."""
