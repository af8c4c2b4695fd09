"""Programs that run inside jobs with `--mpi`: around mpirun, in place of ssh, and on the other nodes. Speak only to their own agent."""
