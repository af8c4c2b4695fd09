"""Machines that joined by `mgpu_node`: the link to their agents, and who may enrol. Decides nothing."""
