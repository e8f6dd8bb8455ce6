"""A folder as a bucket."""
