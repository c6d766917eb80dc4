"""What the constructions share: layers on boolean features, gates, densities, errors."""
