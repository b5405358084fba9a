"""Compile caches as signed, immutable generations in a store."""
