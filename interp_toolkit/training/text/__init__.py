"""Recipes on text: language modelling and sentiment, for all model variants.

- `store`: settings, token ids made on first use, and what is recorded of a text
- `language`: `interp train wikitext`, `fineweb-edu` and `toy-text`: language modelling
- `reviews`: `interp train yelp`: sentiment of reviews
"""
