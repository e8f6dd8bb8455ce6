"""One store for places that keep named bytes: folders, buckets, repositories."""
