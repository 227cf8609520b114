"""Label-free video representations with separate static and dynamic halves."""

__version__ = "0.1.0"
