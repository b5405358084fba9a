"""From a plan to Kubernetes manifests and cloud snippets. Writes text and files, and never talks to a cluster."""
