"""Prefect tasks: thin wrappers of the four stages; specifications in, artifact references out."""
