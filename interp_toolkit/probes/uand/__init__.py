"""Universal AND: readoffs of all pairs of features, their errors, and what follows from them."""
