"""What one head would do, from its weights alone: `--probe qk` and `--probe ov`."""
