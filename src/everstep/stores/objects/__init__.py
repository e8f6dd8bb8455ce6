"""One store for every place that keeps named bytes and can refuse to replace them: folders, buckets, repositories."""
