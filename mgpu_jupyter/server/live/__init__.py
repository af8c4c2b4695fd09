"""What moves, for those who watch: readings and the queue as differences, histories of nodes, jobs and the cluster."""
