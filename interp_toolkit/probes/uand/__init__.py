"""Universal AND: readoffs of all pairs of features, their errors, and what follows from them.

Read `readoff` and `errors` (arrays), `claims` (the rule), `layers`, `site` (a layer beside its
controls), `composed` (ANDs of ANDs), `intersections` (the construction in the weights), `gates`,
`analysis`.
"""
