"""The sorting transformers of the source, trained and judged: `interp reproduce sorting`."""
