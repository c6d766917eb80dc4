"""Claims as people make them: kinds and files of claims, sentences, plans, seals."""
