"""Rules over manifests and machines that serve models: what makes a start slow, or keeps it from ending, before it happens."""
