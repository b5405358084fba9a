"""The host buffer: one memory for all ranks of a node, filled by one process and handed to the others over a socket."""
