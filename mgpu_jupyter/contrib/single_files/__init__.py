"""`make dist`: runnable single files, one for each program of the earlier tools."""
