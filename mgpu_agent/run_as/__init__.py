"""Starting programs, and doing anything for a user: the only part of the agent that spawns, and the only one that changes its user.

A program of a user is never started by root itself. Root starts one *helper* for each account, which gives all rights away before it
serves, and then starts, looks at, hashes and writes whatever is to be done for that user. See DECISIONS, 67.
"""
