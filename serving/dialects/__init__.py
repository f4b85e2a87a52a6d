"""What each engine and router calls the numbers that phasewise reads, mapped to our words once."""
