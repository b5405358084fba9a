"""Whole checkpoints from place to place: push to a store, pull to a folder, both resumable and verified."""
