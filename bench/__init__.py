"""Campaigns and comparisons whose figures stand in the docs: a distribution for development.

``nestmap bench`` comes from here by an entry point; the product imports none of it.
"""
