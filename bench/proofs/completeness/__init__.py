"""How complete strict mode is: every assignment of small programs judged by running it.

The rules may only refuse what would fail. Here code is printed for assignments whatever the
rules say of them, and Oclgrind, PoCL and the interpreter decide. What is refused and yet runs
right is counted by rule (docs/completeness.md).
"""
