"""The scheduler: events in, commands out. No clock, no I/O, no randomness, no logging."""
