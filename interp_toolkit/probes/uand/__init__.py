"""Universal AND: which ANDs of two features a layer computes (`--probe uand`).

Arrays in, arrays out:

- `inputs`: input arrays, checked
- `whitening`: the factorisation that all readouts share
- `readoff`: linear readouts of the AND of every pair
- `tiles`: their scores, one feature's pairs at a time
- `errors`: their errors by class of input
- `claims`: the rule: which pairs are computed here, readable before, or absent
- `intersections`: the readout of the source's construction, from shared neurons

Of a model:

- `layers`: a layer's input, and the same layer with random weights
- `site`: one layer beside its controls
- `gates`: ANDs of ANDs and other boolean functions, layer by layer
- `analysis`: runs all of this for one model
- `result`, `verdict` and `figures`: what it returns, in tables, words and pictures
"""
