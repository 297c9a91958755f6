"""Tasks, verifiers and a trainer for real language models, with the estimators of `shared`.

A task is prompts and their true answers; a verifier turns a response and the truth into two 0/1 rewards, strict (right
and in the required format) and flexible (right). A user's own functions may replace the strict one. A model's text is
hostile input: it is matched and parsed, never evaluated.
"""
