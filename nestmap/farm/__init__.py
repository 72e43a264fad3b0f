"""The farm put together: who works on ``propose`` and ``solve`` jobs, and where.

The same function works on a job (:mod:`nestmap.farm.work`) whether a task beside the API claims
it (:mod:`nestmap.farm.embedded`) or a Celery worker that heard a bell
(:mod:`nestmap.farm.solver_worker`).
"""
