"""Where a job goes: a scratch view of what is free, and the search over it. Pure."""
