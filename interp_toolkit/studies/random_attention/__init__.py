"""Tables and figures of "Is random attention sufficient for sequence modeling?", made again."""
