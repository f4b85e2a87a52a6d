"""The tier document: one description of a tier, for the laptop, the cluster and the simulator."""
