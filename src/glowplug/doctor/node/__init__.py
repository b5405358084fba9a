"""The machine that the doctor runs on: facts are gathered once, and rules judge them."""
