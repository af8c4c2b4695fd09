"""A whole cluster in one thread and in virtual time, hurt by a seeded storm of faults: `make simulate
SEEDS=10000`.

Master, engine, agent and keeper are the product's own code; network, disks, clocks, processes and clients are
made here. One seed is one history: whatever happens is drawn from one `random.Random`, so that a seed that
fails can be run again and looked at.
"""
