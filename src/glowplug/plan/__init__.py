"""What a deployment will need and how long its start will take, before anything exists.

From a checkpoint's headers (or a size and a configuration by hand) and an instance type follow: how many devices hold it, what
memory, disk and network it needs, how it is best fetched, and the seconds from a new node to a ready engine. Every figure says
where it comes from: measured on the user's own starts, published by somebody, or estimated by us. Knows no Kubernetes objects;
``plan.base.Plan`` is what a writer of manifests takes its numbers from. Importing this package imports none of its parts.
"""
