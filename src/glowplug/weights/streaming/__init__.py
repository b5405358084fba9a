"""A checkpoint as a stream of tensors for one process: through a ring of memory, or mapped where it lies on this machine."""
