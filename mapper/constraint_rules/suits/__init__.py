"""Suitability: what a kind of device prefers, as constraints that can be switched one by one.

A mapping that breaks one of these is valid and runs; it is only unlikely to be fast there. Rules
speak of access facts, memory scopes, levels and trip counts, and know no program: what they leave
of a space, the solver finds.
"""
