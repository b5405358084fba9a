"""What a checkpoint is, from its listing and its headers alone: which files, which tensors, and a name made of its content."""
