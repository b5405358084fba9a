"""Signed digests of a checkpoint: made once, compared whenever its bytes are read."""
