"""Where nodes come from: `agents/` is the link to machines that joined.

Who orders machines elsewhere (a provider) goes beside it, and neither knows the other.
"""
