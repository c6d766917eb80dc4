"""Lists to sort: their layout in a prompt, and how they are drawn.

- `layout`: the layout of a sorting task, in words such as "10 list10 11 sorted10", and its prompts
- `draws`: batches of lists from several distributions, and their sorted order
"""
