"""The command line: a second client. Each command is a small module; none imports the server."""
