"""Many sequences at once: what a step is given, and models that compute it."""
