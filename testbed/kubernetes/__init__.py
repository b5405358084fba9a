"""A real Kubernetes API server on this machine: built once from source, started for the tests that send manifests to it."""
