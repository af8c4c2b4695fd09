"""Where a job is placed: a scratch view of what is free, and the search over it. Pure."""
