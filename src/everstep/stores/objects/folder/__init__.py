"""A folder as a bucket: files that appear whole under names that are taken only once. Read `bucket` first.

May import what `stores` may, and no other room of it.
"""
