"""Seeds → loci: candidate loci of each read."""
