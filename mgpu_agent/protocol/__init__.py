"""What master and agents, kernels and cells say to each other; the only part of the agent that the rest may
import.
"""
