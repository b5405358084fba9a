"""Objects under a prefix: in memory, in a folder, in S3."""
