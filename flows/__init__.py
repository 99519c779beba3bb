"""Prefect flows, the managed server, and the command line."""
