"""CUDA devices: the import seam, the choice of device, memory, batches in order."""
