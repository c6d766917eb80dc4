"""The checks of `doctor`, section by section; each module yields its `Check`s."""
