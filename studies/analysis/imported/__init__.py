"""Imported runs as a level of evidence: free designs, several tasks and models, whatever was logged."""
