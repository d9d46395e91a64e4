"""Studies that experiments of several papers are made of: activations, KV caches, arrays of units."""
