"""Programs inside Python cells, run by their path with the interpreter of the job, which need not have mgpu
or any package.

They use the standard library alone, of Python 3.8 and later, and import nothing of mgpu: `runner.py` loads
what lies beside it, and from `protocol/` the one file that it shares with kernels.
"""
