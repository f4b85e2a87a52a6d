"""Real tiers on one machine: engines and their router as processes that phasewise starts itself."""
