"""Does a task need in-context reasoning? Standard against MixiT: `interp litmus TASK`."""
