"""What GPUs a node has and how they do: NVML, or simulated ones."""
