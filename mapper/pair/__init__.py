"""From alignments to records: insert size, rescue, placement, mapping quality, tags."""
