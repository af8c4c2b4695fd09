"""How the nodes of an attempt find each other: interfaces, a port for rank 0, the meeting itself."""
