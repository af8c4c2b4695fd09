"""The rows of the acceptance table that run on real processes, by number."""
