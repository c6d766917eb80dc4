"""Recipes on text: language modeling and sentiment, for all model variants.

- `store`: settings, token ids made on first use, and the records of a text
- `language`: `interp train wikitext`, `fineweb-edu` and `toy-text`: language modeling
- `reviews`: `interp train yelp`: sentiment of reviews
"""
