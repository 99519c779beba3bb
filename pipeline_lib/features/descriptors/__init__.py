"""Descriptors of single pictures, one module per family; see `features.image_descriptors`."""
