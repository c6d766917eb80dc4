"""Tables and figures of the source documents made again, theirs beside ours."""
