"""Which GPUs a node has, and their readings: by NVML, or simulated ones."""
