"""Models whose truth is known, questions about them, and how often a tool is wrong.

Order to read: `case` (a model with what is known of it), `families` (how models are drawn; the
`compiler` makes programs into weights), `suite` (how many of each).
"""
