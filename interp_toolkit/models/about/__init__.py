"""What is known of a model: its record, a description, the provenance of a result, its device."""
