"""One adapter for each engine: what its command means, where it caches, what its log says."""
