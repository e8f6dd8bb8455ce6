"""Commands about what is kept, and about carrying it elsewhere."""
