"""The supervisor: restore, start the engine, watch it, publish what it compiled."""
