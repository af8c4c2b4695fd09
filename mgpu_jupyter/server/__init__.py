"""The Jupyter server extension: wires the parts, checks who asks, turns requests into the master's calls."""
