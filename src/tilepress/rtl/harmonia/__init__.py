"""Harmonia's units: the reconfigurable processing element, the converter, and the generator of key offsets."""
