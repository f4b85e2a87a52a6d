"""KEDA's published interface, and the Python that `make protos` writes from it."""
