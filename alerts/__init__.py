"""What wakes a person, and what to do then."""
