"""Power cuts: what master and nodes did to their disks is recorded once, and the disks are rebuilt as they
may be after a cut.
"""
