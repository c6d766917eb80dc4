"""Why do causal models sort worse? `interp reproduce open/causal-sorting`."""
