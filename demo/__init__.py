"""The demo behind `make demo`: a real vLLM started cold, then from the cache that the cold start shared."""
