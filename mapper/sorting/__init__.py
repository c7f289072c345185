"""Sort records by coordinate, mark duplicates and index, within the run that makes them."""
