"""Recipes on text: language modelling and sentiment, for all model variants.

- `settings`: the settings that these recipes share
- `store`: the token ids that a recipe asks for, made on first use
- `language`: `interp train wikitext`, `fineweb-edu` and `toy-text`
- `language_problem`: next-token batches, loss and test perplexity
- `yelp`: `interp train yelp`, sentiment of reviews
- `review_problem`: batches of reviews, loss and test accuracy
- `record`: what these recipes leave in a checkpoint and say of a run
"""
