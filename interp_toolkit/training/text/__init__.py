"""Recipes on text: corpora, reviews, a generated text; `store` keeps tokens on disk."""
