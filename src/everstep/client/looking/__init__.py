"""Runs looked at: pictures, times, visits, values, changes, comparisons.

What pages that show runs ask for, bounded however long a run is and however many there are. Read `timeline`
first; `drawing` says where nodes stand, `stretches` what is read of a long run, `changes` which runs changed.
May import what `client` may, and no other room of it.
"""
