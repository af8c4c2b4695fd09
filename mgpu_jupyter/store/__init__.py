"""Durable state: SQLite for what must not be lost, plain files for output, memory for tests and simulation."""
