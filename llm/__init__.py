"""Real language models: tasks, verifiers and, on the estimators of `shared`, a trainer.

A task is prompts and their true answers; a verifier turns a response and the truth into two 0/1 rewards, strict (right
and in the required format) and flexible (right). A user's own functions may take the strict one's place. Text of a
model is hostile input: it is matched and parsed, never evaluated.
"""
