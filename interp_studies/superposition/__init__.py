"""Computation in superposition compared with the paper: `interp reproduce superposition[/NAME]`.

- `settings`: the constructions and their sizes, and the expected errors
- `jobs`: builds a construction and measures its errors
- `study`: all constructions, expected and measured errors
- `constructions`: the paper's further constructions, `superposition/constructions`
- `construction_jobs`: their measurements, one job each
- `inclusion_exclusion`: ANDs of every fan-in from one layer of fan-in 2
- `partitioned`: ANDs of all fan-ins in one layer, whose neurons are divided among them
- `remarks`: closed forms of its remarks beside measurements, `superposition/remarks`
- `stacking`: errors of stacked circuits, `superposition/stacking`
- `skip_bigrams`: how many skip-bigrams a head can implement, `superposition/skip-bigrams`
- `capacity`: how many features d dimensions store, `superposition/capacity`
- `packing`: the optimization that `capacity` uses
"""
