"""Claims of anyone about a model, tested: confirmed, refuted, undecided or not testable here."""
