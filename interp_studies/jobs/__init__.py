"""The independent jobs of a study, each result kept as soon as its job has ended.

Read `attempt` (a job and one try at it), `runner`, `job_files` (the files that are kept) and
`engines` (the worker processes that jobs run in).
"""
