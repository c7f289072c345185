"""Pairwise alignment of lists of pairs: edit, gap-affine, matrix, and very long strings."""
