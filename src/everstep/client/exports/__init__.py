"""Runs in the words of others: folders of plain files, three-file sets, forms. Nothing here is read back
as truth.

Read `run_folder` first. May import what `client` may, and no other room of it.
"""
