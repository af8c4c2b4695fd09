"""Live data for watchers: readings, differences of the queue, histories of nodes, jobs and cluster."""
