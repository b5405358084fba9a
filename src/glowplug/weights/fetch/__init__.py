"""Bytes from a source into memory: what to ask for, many requests at once, and what to do when one of them does not end well."""
