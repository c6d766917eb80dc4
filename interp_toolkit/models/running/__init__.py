"""Running a model: hooks that are gone afterwards, activations as they appear, checked edits.

Read `hooks` and `forward`, `streaming` (activations in batches that fit `memory`), `interventions`
and `effect` (an edit that does nothing is an error).
"""
