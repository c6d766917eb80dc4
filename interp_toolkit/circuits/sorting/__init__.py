"""What a sorting transformer computes, and how: analyses of any model, given its layout."""
