"""Durable state: SQLite for what must not be lost, files for output, memory for tests and simulation."""
