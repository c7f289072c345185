"""fmwave: a seed-and-extend mapper of DNA reads."""

__version__ = "0.1.0"
