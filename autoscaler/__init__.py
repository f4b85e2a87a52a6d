"""How many replicas of each phase, and why."""
