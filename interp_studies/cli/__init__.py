"""The commands of the studies: `reproduce`, `sweep`, `litmus`, `challenge`."""
