"""An independent judge of what a cluster did: it reads what a client was told and what jobs wrote down
themselves.

Imports nothing of mgpu, so that no mistake of mgpu's can hide in it. `python -m tests.checker DIRECTORY`
judges one history.
"""
