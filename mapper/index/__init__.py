"""The FM-index: built from a FASTA, kept on disk, searched."""
