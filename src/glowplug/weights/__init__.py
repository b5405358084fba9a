"""Checkpoints: what is in them, and their bytes, from an object store, a web server or a disk, as fast as these give them.

Knows safetensors and where the bytes lie; knows no engine, and imports torch only where a tensor is asked for.
"""
