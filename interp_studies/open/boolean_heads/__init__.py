"""How many heads does a boolean function need? `interp reproduce open/boolean-heads`."""
