"""The independent jobs of a study, in processes of their own, kept one by one.

Read `attempt` (a job and how it went), `runner`, `job_files` (what is kept), `engines`,
`own_process` and `dask_engine` (where jobs run).
"""
