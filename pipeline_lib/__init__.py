"""Pure library of affinity-bench: methods, data, metrics and the plain runner."""
