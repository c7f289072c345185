"""Alignments → records: insert size, rescue, placement, quality, tags."""
