"""Lists to sort: their layout in a prompt, and their distributions.

- `layout`: layouts of sorting tasks, such as "10 list10 11 sorted10"; their prompts and test lists
- `draws`: batches of lists from several distributions, and their sorted order
"""
