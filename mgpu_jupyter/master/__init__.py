"""The master: single owner of the state, one queue in, one commit per batch, then the sends."""
