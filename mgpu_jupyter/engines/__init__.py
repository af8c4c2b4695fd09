"""Engines provide nodes and carry out what the scheduler decided; each is a sibling of the others."""
