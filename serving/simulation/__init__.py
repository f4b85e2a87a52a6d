"""A disaggregated tier played iteration by iteration, with the outside that a real one has."""
