"""Seeds → loci: candidate places of each read."""
