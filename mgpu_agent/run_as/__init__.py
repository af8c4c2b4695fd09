"""Starting programs, and all work done for a user: the only part of the agent that spawns, and the only one
that changes its user.

A user's program is never started by root itself. Root starts one *helper* for each account, which gives up
all other rights before it serves, and then starts programs and reads, hashes and writes files for that user.
See DECISIONS, 67.
"""
