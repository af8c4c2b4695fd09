"""Millions of frames that no honest program sends, in process, against the real receivers of master, agent
and keeper.
"""
