"""The systems: machines that decide, each in a package of its own; none of them imports another.

What several of them need stands beside them.
"""
