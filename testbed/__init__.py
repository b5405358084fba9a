"""Real servers and engines for the tests, the demo and the benchmarks; no part of the installed package."""
