"""Answers to "why?": what a waiting job is told, in a line or in full, and what would start it now. Decides
nothing about jobs.
"""
