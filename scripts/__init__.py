"""The repository's own set-up, behind the Makefile. Standard library only: it runs before anything is installed."""
