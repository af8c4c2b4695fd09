"""The agent's own pure machine: events in, commands out."""
