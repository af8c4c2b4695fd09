"""Programs that run inside jobs with `--mpi`: around mpirun, in place of ssh, and on the other nodes. They
talk only to their own agent.
"""
