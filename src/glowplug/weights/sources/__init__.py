"""Where a checkpoint's bytes come from, one module a kind: S3, a web server, a folder."""
