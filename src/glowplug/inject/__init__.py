"""One self-contained folder that runs Glowplug beside an engine in somebody else's image."""
