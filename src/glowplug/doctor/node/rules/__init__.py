"""Rules over a machine's facts, one module a theme."""
