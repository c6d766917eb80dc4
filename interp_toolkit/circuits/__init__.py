"""What weights and heads compute: detectors, QK/OV circuits, composition."""
