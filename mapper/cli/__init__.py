"""The command fmwave: one file for each subcommand, and their common helpers."""
