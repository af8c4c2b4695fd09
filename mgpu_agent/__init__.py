"""The node agent: runs jobs on one machine, knows nothing of Jupyter."""

__version__ = "0.1.0"
