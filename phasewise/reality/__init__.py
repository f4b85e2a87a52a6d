"""The simulator against a real pair: record, fit, play again, compare."""
