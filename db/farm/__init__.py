"""The farm's half of the store: who may come in, what is to be done, who does it, what came of it.

:class:`db.farm.farm.Farm` opens a database and holds the repositories. Every public method of
a repository is one transaction; values go in and come out as frozen dataclasses.
"""
