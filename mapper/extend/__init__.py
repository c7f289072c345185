"""Loci → alignments: ungapped, then gap-affine wavefronts."""
