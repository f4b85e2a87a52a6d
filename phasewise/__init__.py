"""The front door: command line, settings, wiring."""
