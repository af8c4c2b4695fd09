"""The JupyterLab extension: its types, its assets, its size. What needs Node is run by `make ui-check`."""
