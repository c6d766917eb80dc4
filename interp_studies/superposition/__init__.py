"""Computation in superposition against the source: `interp reproduce superposition[/NAME]`.

- `settings`: the constructions and sizes, and the expected errors
- `jobs`: builds a construction and measures its errors
- `study`: all constructions, expected beside measured
- `constructions`: the further constructions, `superposition/constructions`
- `construction_jobs`: their measurements, one job each
- `inclusion_exclusion`: ANDs of every fan-in from the one layer of fan-in 2
- `partitioned`: ANDs of all fan-ins in one layer, its neurons divided among them
- `stacking`: errors of stacked circuits, `superposition/stacking`
- `skip_bigrams`: how many skip-bigrams a head can check for, `superposition/skip-bigrams`
- `capacity`: how many features d dimensions store, `superposition/capacity`
- `packing`: the optimization behind `capacity`
"""
