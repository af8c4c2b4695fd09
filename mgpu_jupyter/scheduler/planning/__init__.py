"""The order of waiting jobs, promises to those at the head, and one pass over all of them. Pure."""
