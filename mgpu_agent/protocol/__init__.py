"""What master and agents say to each other; the only part of the agent that the rest may import."""
