"""Where the seconds of a start went."""
