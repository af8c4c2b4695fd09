"""The Jupyter server extension: wires the parts, checks who asks, and turns requests into calls of the master."""
