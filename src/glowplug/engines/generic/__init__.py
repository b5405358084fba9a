"""Any command that compiles through torch, Inductor or Triton."""
