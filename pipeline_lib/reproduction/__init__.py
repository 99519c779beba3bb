"""Computing a run again and saying whether, and if not why, it comes out otherwise."""
