"""Mapping from Python: reads in, columns or objects out, by the command's own path."""
