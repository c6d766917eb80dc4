"""Models whose truth is known, questions about them, and how often a tool is wrong.

Order to read: `case` (a model with what is known of it), `families` (how models are drawn;
`programs` are made into weights by `tracr_model`, `disguise` gives models other weights, `plain`
measures what is true), `suite` (how many of each), `question`, `tools` (who is asked), `score`,
`result`, `run`.
"""
