"""A folder as a bucket: files that appear whole under names that are taken only once. Read `bucket` first."""
