"""The command fmwave: one file for each subcommand, and what they share."""
