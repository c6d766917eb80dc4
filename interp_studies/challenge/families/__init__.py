"""The suite's families: each draws models with their truth from seeds."""
