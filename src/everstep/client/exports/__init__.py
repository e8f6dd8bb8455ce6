"""Runs in the words of others: folders of plain files, three-file sets, forms. Nothing here is read back
as truth.
"""
