"""The keeper: parent of every job process on a node; outlives the agent, knows no network."""
