"""A bucket of S3, Google Cloud Storage or Azure. Read `bucket` first; `trouble` says what its errors mean.

May import what `stores` may, and no other room of it.
"""
