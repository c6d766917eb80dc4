"""What heads do where rows ask for an answer: move, suppress, inhibit, park: `--probe roles`."""
