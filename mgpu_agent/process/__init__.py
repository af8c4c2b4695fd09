"""How the agent turns a launch into processes and their spool files into output."""
