"""Where nodes come from: `agents/` is the link to machines that joined.

A provider, which orders machines elsewhere, goes beside it, and neither knows the other.
"""
