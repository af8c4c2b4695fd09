"""`mgpu demo`: a cluster to try on this machine, with its notebooks, in JupyterLab or without a browser.

Starts the same programs that people start, as processes of their own, and ends what it started. No part of a
real cluster uses it.
"""
