"""Glowplug starts an LLM inference server on a new Kubernetes node as fast as on a warm one."""

__version__ = "0.1.0"
